-- Hand in what a worker has done, and take what it does next, in one step.
--
-- KEYS[1] the worker, as RQ knows it   KEYS[2..] the queues, the most urgent first
-- ARGV[1] how many jobs to take at the most   ARGV[2] the name of the worker   ARGV[3] the time, as RQ writes it
-- ARGV[4] until when what is taken is leased, in ms
-- ARGV[5] 1 to look whether RQ's workers are suspended: then nothing is taken
-- ARGV[6] 1 when the last answer was lost: what was taken then is given again
-- ARGV[7] 1 for a worker that runs one job at a time, and writes down which, under a name that is not RQ's: tools
--         that read what RQ calls the current job unpickle it, and fail with the page that shows all workers
-- ARGV[8] the leases, which are no key of this script: whoever names a key must be allowed to write to all of them
-- by one rule
-- ARGV[9] n, then n jobs that are done: token, stream, how many words, the words of the event that says so
-- ARGV    the rest: tokens that this worker has taken from a queue already
-- Returns nothing when the workers are suspended, else for each job its token, its data and its description.
local most, worker, now, due = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local is_single, leases = ARGV[7] == "1", ARGV[8]
local taken, begun, done = {}, {}, {}

local at = 10
for _ = 1, tonumber(ARGV[9]) do
  local token, stream, words = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if words > 0 then
    redis.call("XADD", stream, "*", unpack(ARGV, at + 3, at + 2 + words))
  end
  redis.call("DEL", "rq:job:" .. token)
  done[token], at = true, at + 3 + words
end

-- A job without a hash was revoked, and one without a lease is waited for by nobody: both are passed over. What
-- never had a lease is no step of ours, and is given as it is. Keys that RQ owns may hold anything.
local function begin(token)
  if begun[token] then
    return
  end
  begun[token] = true
  local key = "rq:job:" .. token
  local job = redis.pcall("HMGET", key, "data", "description", "lease")
  if job.err or not job[1] then
    return
  end
  local lease = lease_in(token, job[2], job[3])
  if lease and redis.call("ZADD", leases, "XX", "CH", due, lease) == 0
    and not redis.call("ZSCORE", leases, lease) then
    redis.call("DEL", key)
    return
  end
  redis.call("HSET", key, "status", "started", "worker_name", worker, "started_at", now)
  taken[#taken + 1], taken[#taken + 2], taken[#taken + 3] = token, job[1], job[2] or ""
end

if ARGV[6] == "1" and is_single then
  local current = redis.pcall("HGET", KEYS[1], "current_step")
  if type(current) == "string" and not done[current]
    and redis.pcall("HGET", "rq:job:" .. current, "worker_name") == worker then
    begin(current)
  end
end
for n = at, #ARGV do
  begin(ARGV[n])
end

local is_suspended = ARGV[5] == "1" and redis.call("EXISTS", "rq:suspended") == 1
if is_suspended and #taken == 0 then
  return false
end
-- From several queues at once since Redis 7; the number of its version is not there before, nor in fakeredis.
local queues = { unpack(KEYS, 2) }
local pops_many = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
local function pop()
  if pops_many then
    local words = { "LMPOP", #queues, unpack(queues) }
    words[#words + 1], words[#words + 2], words[#words + 3] = "LEFT", "COUNT", most - #taken / 3
    local found = redis.call(unpack(words))
    return found and found[2]
  end
  for _, queue in ipairs(queues) do
    local token = redis.call("LPOP", queue)
    if token then
      return { token }
    end
  end
end
while not is_suspended and #taken < 3 * most do
  local tokens = pop()
  if not tokens then
    break
  end
  for _, token in ipairs(tokens) do
    begin(token)
  end
end

if is_single and #taken > 0 then
  redis.call("HSET", KEYS[1], "current_step", taken[1], "state", "busy")
elseif is_single and tonumber(ARGV[9]) > 0 then
  redis.call("HDEL", KEYS[1], "current_step")
end
return taken
