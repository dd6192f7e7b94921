-- Part of commit.lua: dispatch jobs, and revoke jobs whose result is no longer needed.

-- Add jobs to the sequence of a queue and return the last sequence. A new queue gets the first unused range.
local function last_sequence(name, jobs)
  local last = redis.call("HINCRBY", KEYS[2], name, jobs)
  if last < FIRST_SEQUENCE then
    local highest, known = FIRST_SEQUENCE - SEQUENCES_PER_QUEUE, redis.call("HGETALL", KEYS[2])
    for n = 2, #known, 2 do
      highest = math.max(highest, tonumber(known[n]) or 0)
    end
    last = (math.floor(highest / SEQUENCES_PER_QUEUE) + 1) * SEQUENCES_PER_QUEUE + jobs
    redis.call("HSET", KEYS[2], name, format_score(last))
    redis.call("SADD", "rq:queues", "rq:queue:" .. name)
  end
  return last
end

-- The first commit of a call that uses a queue pushes its jobs at once: if the queue's key has a wrong type, the error
-- comes before the record says that the jobs are queued. The jobs of further commits are pushed with the batch.
local function dispatch()
  for _ = 1, next_number() do
    local name, jobs = next_arg(), next_number()
    local queue, tokens, leases = queues[name], {}, batched("ZADD", KEYS[1])
    if queue then
      tokens = queue.tokens
    else
      queue = { sequence = last_sequence(name, jobs) - jobs, tokens = {} }
      queues[name] = queue
      queues[#queues + 1] = name
    end
    local sequence = queue.sequence
    for n = 1, jobs do
      local token, data, timeout, lease = unpack(ARGV, at, at + 3)
      at = at + 4
      redis.call("HSET", "rq:job:" .. token, "data", data, "timeout", timeout, "description", lease,
        "origin", name, "status", "queued")
      tokens[#tokens + 1] = token
      -- A lease that no worker has taken is never due. sweep.lua makes it due when its job leaves the queue.
      leases[#leases + 1], leases[#leases + 2] = format_score(sequence + n), lease
    end
    queue.sequence = sequence + jobs
    if tokens ~= queue.tokens then
      run_in_parts(redis.call, tokens, "RPUSH", "rq:queue:" .. name)
    end
  end
end

-- An idle worker may still name the job: its work-horse exited with code 0 and published nothing. Such a worker must
-- not get a stop-job command. RQ would look for the process group of the work-horse, find the worker's own, and
-- kill it.
local function is_left_over(worker, token)
  local known = redis.pcall("HMGET", "rq:worker:" .. worker, "state", "current_job")
  return known[1] == "idle" and known[2] == token
end

-- A queued job loses its hash: RQ skips a job without one, so this works for a queue of any length.
-- A running job keeps its hash, which its worker deletes, or which expires if the worker is dead. Its lease is
-- removed, so that its result is stale, and its worker is sent a stop-job command. If the command is lost, the worker
-- finds the lease missing at its next heartbeat.
local function revoke(token)
  local job = redis.call("HMGET", "rq:job:" .. token, "status", "worker_name")
  if job[1] == "queued" then
    redis.call("DEL", "rq:job:" .. token)
  elseif job[1] then
    if job[2] and not is_left_over(job[2], token) then
      redis.call("PUBLISH", "rq:pubsub:" .. job[2], cjson.encode({ command = "stop-job", job_id = token }))
    end
    redis.call("EXPIRE", "rq:job:" .. token, 86400)
  end
end
