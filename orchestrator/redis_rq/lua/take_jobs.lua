-- Finish the jobs that a worker has run, and take its next jobs, in one step.
--
-- KEYS[1] the worker, as RQ stores it   KEYS[2..] the queues, the most urgent first
-- ARGV[1] the maximum number of jobs to take   ARGV[2] the name of the worker   ARGV[3] the time, as RQ writes it
-- ARGV[4] until when the jobs are leased, in ms
-- ARGV[5] 1 to check whether RQ's workers are suspended: then no job is taken
-- ARGV[6] 1 when the reply of the last call was lost: the job that was taken by it is returned again
-- ARGV[7] 1 for a worker that runs one job at a time. Its current job is stored in a field that is not RQ's: tools
--         that read RQ's own field unpickle the job, and their page of all workers would fail
-- ARGV[8] the leases. They are not in KEYS: a user must have the right to write to every key of a script by one rule
-- ARGV[9] n, then n finished jobs: id, stream, the number of args of its event, the args
-- ARGV    the rest: ids that this worker has already popped from a queue
-- Returns nil when the workers are suspended, else for each job its id, its data and its description.
local max_jobs, worker, now, due = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local is_single, leases = ARGV[7] == "1", ARGV[8]
local taken, started, finished = {}, {}, {}

local at = 10
for _ = 1, tonumber(ARGV[9]) do
  local id, stream, args = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2])
  if args > 0 then
    redis.call("XADD", stream, "*", unpack(ARGV, at + 3, at + 2 + args))
  end
  redis.call("DEL", "rq:job:" .. id)
  finished[id], at = true, at + 3 + args
end

-- A job without a hash was revoked, and the step of a job without a lease is no longer waited for: both are skipped.
-- A job that never had a lease is not one of our steps, and is returned as it is. RQ's keys may hold anything.
local function start(id)
  if started[id] then
    return
  end
  started[id] = true
  local key = "rq:job:" .. id
  local job = redis.pcall("HMGET", key, "data", "description")
  if job.err or not job[1] then
    return
  end
  local lease = job_lease(id, job[2])
  if lease and redis.call("ZADD", leases, "XX", "CH", due, lease) == 0
    and not redis.call("ZSCORE", leases, lease) then
    redis.call("DEL", key)
    return
  end
  redis.call("HSET", key, "status", "started", "worker_name", worker, "started_at", now)
  taken[#taken + 1], taken[#taken + 2], taken[#taken + 3] = id, job[1], job[2] or ""
end

if ARGV[6] == "1" and is_single then
  local current = redis.pcall("HGET", KEYS[1], "current_step")
  if type(current) == "string" and not finished[current]
    and redis.pcall("HGET", "rq:job:" .. current, "worker_name") == worker then
    start(current)
  end
end
for n = at, #ARGV do
  start(ARGV[n])
end

local is_suspended = ARGV[5] == "1" and redis.call("EXISTS", "rq:suspended") == 1
if is_suspended and #taken == 0 then
  return false
end
-- LMPOP pops from several queues since Redis 7. Older servers and fakeredis have no REDIS_VERSION_NUM.
local queues = { unpack(KEYS, 2) }
local has_lmpop = (redis.REDIS_VERSION_NUM or 0) >= 0x00070000
local function pop()
  if has_lmpop then
    local args = { "LMPOP", #queues, unpack(queues) }
    args[#args + 1], args[#args + 2], args[#args + 3] = "LEFT", "COUNT", max_jobs - #taken / 3
    local found = redis.call(unpack(args))
    return found and found[2]
  end
  for _, queue in ipairs(queues) do
    local id = redis.call("LPOP", queue)
    if id then
      return { id }
    end
  end
end
while not is_suspended and #taken < 3 * max_jobs do
  local ids = pop()
  if not ids then
    break
  end
  for _, id in ipairs(ids) do
    start(id)
  end
end

if is_single and #taken > 0 then
  redis.call("HSET", KEYS[1], "current_step", taken[1], "state", "busy")
elseif is_single and tonumber(ARGV[9]) > 0 then
  redis.call("HDEL", KEYS[1], "current_step")
end
return taken
