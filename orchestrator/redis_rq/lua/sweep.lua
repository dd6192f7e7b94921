-- Raise what is due as events, on the clock of Redis: timers, and dispatches whose worker was lost.
-- It is also the beat of the coordinator that calls it.
--
-- KEYS[1] the leases   KEYS[2] the timers   KEYS[3] the sequences of the queues   KEYS[4] the coordinators
-- KEYS[5] the prefix of the keys that hold what earlier releases have dispatched and nobody has started, one for
-- each queue
-- KEYS[6] the largest number of event streams that was ever used
-- ARGV[1] prefix of the event streams, e.g. "orchestrator:events:"   ARGV[2] how many of them
-- ARGV[3] the grace in ms   ARGV[4] how many entries of each kind to look at, at the most
-- ARGV[5] the name of this coordinator   ARGV[6] after how many ms without a beat a coordinator is dead
-- ARGV[7] 1 to judge leases, 0 while those who hold them have had no time to beat
-- Returns how many events were raised, how many jobs wait in all queues, how many event streams there are,
-- then the names of the coordinators that are alive, in order.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local grace, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local raised = 0

-- fakeredis has no sha1hex; any stream brings an event, only not to the coordinator that knows the record.
local sha1hex = redis.sha1hex or function() return "00000000" end
local function events_of(execution)
  return ARGV[1] .. (tonumber(string.sub(sha1hex(execution), 1, 8), 16) % tonumber(ARGV[2]))
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

-- Keys that RQ owns may hold anything: a wrong type there must not stop the sweep.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == "table" and answer.err then
    return nil
  end
  return answer
end

-- The sequence of the first job that waits in a queue, whose range begins with `first`: what has a lower one has
-- left it. A job of an earlier release says its sequence itself, which is lower than any of the range.
local function head_of(queue, first)
  for at = 0, 9 do
    local token = ask("LINDEX", "rq:queue:" .. queue, at)
    if not token then
      return at == 0 and math.huge or nil
    end
    local job = ask("HMGET", "rq:job:" .. token, "description", "lease", "sequence") or {}
    local sequence = tonumber(job[3] or "")
    local score = tonumber(ask("ZSCORE", KEYS[1], lease_in(token, job[1], job[2]) or "") or "") or 0
    if sequence or (score >= first and score < first + RANGE) then
      return sequence or score
    end
  end
end

local queues, waiting = redis.call("HGETALL", KEYS[3]), 0
for n = 1, #queues, 2 do
  waiting = waiting + (ask("LLEN", "rq:queue:" .. queues[n]) or 0)
end
if ARGV[7] == "1" then
  local due = redis.call("ZRANGEBYSCORE", KEYS[1], "-inf", now, "WITHSCORES", "LIMIT", 0, most)
  for i = 1, #due, 2 do
    redis.call("ZREM", KEYS[1], due[i])
    local is_unstarted = tonumber(due[i + 1]) % 1 > 0
    lost(due[i], is_unstarted and "its job left the queue and nobody started it" or "its worker stopped beating")
  end
end

-- Jobs that left their queue and that nobody has started yet get a term; half a millisecond marks it.
local unstarted = string.format("%.1f", now + grace + 0.5)
local function give_a_term(members)
  local words = {}
  for n, member in ipairs(members) do
    words[#words + 1], words[#words + 2] = unstarted, member
    if #words >= 2000 or n == #members then
      redis.call("ZADD", KEYS[1], unpack(words))
      words = {}
    end
  end
end

-- What an earlier release has put on a queue is never due, and stands in a set of the queue by its sequence.
local function of_earlier_release(queue, below)
  local dispatched = KEYS[5] .. queue
  local gone = redis.call("ZRANGEBYSCORE", dispatched, "-inf", below, "LIMIT", 0, 10 * most)
  for _, member in ipairs(gone) do
    if redis.call("ZSCORE", KEYS[1], member) == "inf" then
      give_a_term({ member })
    end
  end
  if #gone > 0 then
    redis.call("ZREMRANGEBYRANK", dispatched, 0, #gone - 1)
  end
end

for n = 1, #queues, 2 do
  local queue, last = queues[n], tonumber(queues[n + 1]) or 0
  local first = math.floor(last / RANGE) * RANGE
  local head = head_of(queue, first)
  if head then
    of_earlier_release(queue, head == math.huge and "+inf" or "(" .. written(head))
    if first >= WAITING then
      local below = "(" .. written(math.min(head, first + RANGE))
      give_a_term(redis.call("ZRANGEBYSCORE", KEYS[1], written(first), below, "LIMIT", 0, 10 * most))
    end
  end
end

-- What RQ calls failed is a step whose worker never published a result: the harness itself never fails.
for n = 1, #queues, 2 do
  local failed = "rq:failed:" .. queues[n]
  for _, token in ipairs(ask("ZRANGE", failed, 0, most - 1) or {}) do
    local job = ask("HMGET", "rq:job:" .. token, "description", "lease") or {}
    lost(lease_in(token, job[1], job[2]) or "", "its work-horse died")
    redis.call("ZREM", failed, token)
    redis.call("DEL", "rq:job:" .. token, "rq:results:" .. token)
  end
end

-- Timers. A member is <kind>|<execution>|<step>|<token>.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, most)) do
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

-- Whoever was dispatched while there were more streams names one of those: they are read for ever.
local streams = tonumber(redis.call("GET", KEYS[6]) or "") or 0
if streams < tonumber(ARGV[2]) then
  redis.call("SET", KEYS[6], ARGV[2])
  streams = tonumber(ARGV[2])
end
local answer = { tostring(raised), tostring(waiting), tostring(streams) }
local alive = redis.call("ZRANGE", KEYS[4], 0, -1)
table.sort(alive)
for _, name in ipairs(alive) do
  answer[#answer + 1] = name
end
return answer
