-- Raise what is due as events, on the clock of Redis: timers, and dispatches whose worker was lost.
-- It is also the beat of the coordinator that calls it.
--
-- KEYS[1] the leases   KEYS[2] the timers   KEYS[3] the sequences of the queues   KEYS[4] the coordinators
-- ARGV[1] prefix of the event streams, e.g. "orchestrator:events:"   ARGV[2] how many of them
-- ARGV[3] the grace in ms   ARGV[4] how many entries of each kind to look at, at the most
-- ARGV[5] the name of this coordinator   ARGV[6] after how many ms without a beat a coordinator is dead
-- Returns how many events were raised, then the names of the coordinators that are alive, in order.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local grace = tonumber(ARGV[3])
local raised = 0

local function events_of(execution)
  return ARGV[1] .. (tonumber(string.sub(redis.sha1hex(execution), 1, 8), 16) % tonumber(ARGV[2]))
end

-- A lease entry is <execution>|<step>|<run_id>|<attempt>|<token>; whatever else stands there is nobody's.
local function lost(member, reason)
  local execution, step, run_id, attempt, token = string.match(member, "^(.-)|(.-)|(.-)|(.-)|(.-)$")
  if not execution then
    return
  end
  redis.call("XADD", events_of(execution), "*", "type", "lost", "execution", execution, "step", step,
    "run_id", run_id, "attempt", attempt, "token", token, "reason", reason)
  raised = raised + 1
end

-- Leases. The fraction of a score says what the entry stands for: .25 dispatched, nobody has started it; .50
-- the same, and it was missing from its queue when last looked at; .00 started, and beaten by its worker.
-- A job that waits in a deep queue is not lost: its sequence is not below that of the queue's head.
local heads = {}
local function is_queued(token)
  local job = redis.call("HMGET", "rq:job:" .. token, "origin", "sequence")
  local queue, sequence = job[1], tonumber(job[2] or "")
  if not queue or not sequence then
    return false
  end
  if heads[queue] == nil then
    local head = redis.call("LINDEX", "rq:queue:" .. queue, 0)
    -- A head without a hash was revoked: it says nothing, so take it that all behind it still wait.
    heads[queue] = head and (tonumber(redis.call("HGET", "rq:job:" .. head, "sequence") or "") or 0) or math.huge
  end
  return sequence >= heads[queue]
end

local due = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now, "WITHSCORES", "LIMIT", 0, ARGV[4])
for i = 1, #due, 2 do
  local member, kind = due[i], tonumber(due[i + 1]) % 1
  if kind < 0.1 then
    redis.call("ZREM", KEYS[1], member)
    lost(member, "its worker stopped beating")
  elseif is_queued(string.match(member, "|([^|]*)$") or "") then
    redis.call("ZADD", KEYS[1], string.format("%.2f", now + grace + 0.25), member)
  elseif kind < 0.4 then
    -- Popped a moment ago, perhaps, by a worker that has not beaten yet: look once more before judging.
    redis.call("ZADD", KEYS[1], string.format("%.2f", now + 2000 + 0.5), member)
  else
    redis.call("ZREM", KEYS[1], member)
    lost(member, "its job left the queue and nobody started it")
  end
end

-- What RQ calls failed is a step whose worker never published a result: the harness itself never fails.
for _, queue in ipairs(redis.call("HKEYS", KEYS[3])) do
  local failed = "rq:failed:" .. queue
  for _, token in ipairs(redis.call("ZRANGE", failed, 0, ARGV[4] - 1)) do
    -- Not from the job's data: RQ compresses that when it notes the failure.
    lost(redis.call("HGET", "rq:job:" .. token, "lease") or "", "its work-horse died")
    redis.call("ZREM", failed, token)
    redis.call("DEL", "rq:job:" .. token, "rq:results:" .. token)
  end
end

-- Timers. A member is <kind>|<execution>|<step>|<token>.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, ARGV[4])) do
  local kind, execution, step, token = string.match(member, "^(.-)|(.-)|(.-)|(.-)$")
  redis.call("ZREM", KEYS[2], member)
  if kind then
    redis.call("XADD", events_of(execution), "*", "type", kind, "execution", execution, "step", step,
      "token", token)
    raised = raised + 1
  end
end

redis.call("ZADD", KEYS[4], now, ARGV[5])
redis.call("ZREMRANGEBYSCORE", KEYS[4], "-inf", now - ARGV[6])
local answer = { tostring(raised) }
local alive = redis.call("ZRANGE", KEYS[4], 0, -1)
table.sort(alive)
for _, name in ipairs(alive) do
  answer[#answer + 1] = name
end
return answer
