-- Take jobs from RQ queues and mark them as started, in one step.
--
-- KEYS    the queues, the most urgent first
-- ARGV[1] how many jobs at the most   ARGV[2] the worker that takes them   ARGV[3] the time, as RQ writes it
-- ARGV    the rest: tokens that this worker has taken from a queue already
-- Returns nothing when the workers are suspended, else for each job its token and its data.
local most, worker, now = tonumber(ARGV[1]), ARGV[2], ARGV[3]
local taken = {}

-- A job without a hash was revoked: it is passed over. Keys that RQ owns may hold anything.
local function begin(token)
  local key = "rq:job:" .. token
  local data = redis.pcall("HGET", key, "data")
  if type(data) ~= "string" then
    return
  end
  redis.call("HSET", key, "status", "started", "worker_name", worker, "started_at", now)
  taken[#taken + 1] = token
  taken[#taken + 1] = data
end

for n = 4, #ARGV do
  begin(ARGV[n])
end
if redis.call("EXISTS", "rq:suspended") == 1 then
  return #taken > 0 and taken
end
for _, queue in ipairs(KEYS) do
  while #taken < 2 * most do
    local token = redis.call("LPOP", queue)
    if not token then
      break
    end
    begin(token)
  end
end
return taken
