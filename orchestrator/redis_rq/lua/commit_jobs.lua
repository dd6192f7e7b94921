-- Part of commit.lua: dispatch jobs, and revoke jobs whose result is no longer needed.

-- Add jobs to the sequence of a queue and return the last sequence. A new queue gets the first unused range.
local function last_sequence(name, jobs)
  local last = must("HINCRBY", KEYS[2], name, jobs)
  if last < FIRST_SEQUENCE then
    local highest, known = FIRST_SEQUENCE - SEQUENCES_PER_QUEUE, must("HGETALL", KEYS[2])
    for n = 2, #known, 2 do
      highest = math.max(highest, tonumber(known[n]) or 0)
    end
    last = (math.floor(highest / SEQUENCES_PER_QUEUE) + 1) * SEQUENCES_PER_QUEUE + jobs
    must("SADD", "rq:queues", "rq:queue:" .. name)
    must("HSET", KEYS[2], name, format_score(last))
  end
  return last
end

-- Read the jobs of a commit, and push those for queues that no commit of this call has used before: if a queue's key has a
-- wrong type, the error comes before the record says that the jobs are queued. The id of a job in a queue does no harm if its
-- commit is given up: RQ skips a job without a hash. The jobs of further commits are pushed with the batch.
local function push_jobs()
  local pushed = {}
  for _ = 1, next_number() do
    local name, jobs = next_arg(), next_number()
    local first, is_new = at, not queues[name]
    at = at + 4 * jobs
    pushed[#pushed + 1] = { name = name, jobs = jobs, first = first, is_new = is_new }
    if is_new then
      local last, ids = last_sequence(name, jobs), {}
      for n = 1, jobs do
        ids[n] = ARGV[first + 4 * (n - 1)]
      end
      run_in_parts(must, ids, "RPUSH", "rq:queue:" .. name)
      queues[name] = { sequence = last - jobs, ids = {} }
      queues[#queues + 1] = name
    end
  end
  return pushed
end

-- Write the hashes and the leases of the jobs of a commit.
local function write_jobs(pushed)
  local leases = batched("ZADD", KEYS[1])
  for _, part in ipairs(pushed) do
    local queue = queues[part.name]
    for n = 1, part.jobs do
      local id, data, timeout, lease = unpack(ARGV, part.first + 4 * (n - 1), part.first + 4 * n - 1)
      run("HSET", "rq:job:" .. id, "data", data, "timeout", timeout, "description", lease,
        "origin", part.name, "status", "queued")
      if not part.is_new then
        queue.ids[#queue.ids + 1] = id
      end
      -- A lease that no worker has taken is never due. sweep.lua makes it due when its job leaves the queue.
      leases[#leases + 1], leases[#leases + 2] = format_score(queue.sequence + n), lease
    end
    queue.sequence = queue.sequence + part.jobs
  end
end

-- An idle worker may still name the job: its work-horse exited with code 0 and published nothing. Such a worker must
-- not get a stop-job command. RQ would look for the process group of the work-horse, find the worker's own, and
-- kill it.
local function is_left_over(worker, id)
  local known = redis.pcall("HMGET", "rq:worker:" .. worker, "state", "current_job")
  return known[1] == "idle" and known[2] == id
end

-- A queued job loses its hash: RQ skips a job without one, so this works for a queue of any length.
-- A running job keeps its hash, which its worker deletes, or which expires if the worker is dead. Its lease is
-- removed, so that its result is stale, and its worker is sent a stop-job command. If the command is lost, the worker
-- finds the lease missing at its next heartbeat.
local function revoke(id)
  local job = run("HMGET", "rq:job:" .. id, "status", "worker_name")
  if job[1] == "queued" then
    run("DEL", "rq:job:" .. id)
  elseif job[1] then
    if job[2] and not is_left_over(job[2], id) then
      run("PUBLISH", "rq:pubsub:" .. job[2], cjson.encode({ command = "stop-job", job_id = id }))
    end
    run("EXPIRE", "rq:job:" .. id, 86400)
  end
end
