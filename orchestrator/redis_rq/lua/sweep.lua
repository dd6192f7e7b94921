-- Publish what is due as events, by the clock of Redis: timers, and dispatches whose worker was lost. It is also the
-- heartbeat of the coordinator that calls it.
--
-- KEYS[1] the leases   KEYS[2] the timers   KEYS[3] the sequences of the queues   KEYS[4] the coordinators
-- KEYS[5] the largest number of event streams ever used   KEYS[6] the list of held starts
-- ARGV[1] the prefix of the event streams, e.g. "orchestrator:events:"   ARGV[2] the number of event streams
-- ARGV[3] the grace time in ms   ARGV[4] the maximum number of entries of each kind
-- ARGV[5] the name of this coordinator   ARGV[6] after how many ms without a heartbeat a coordinator is dead
-- ARGV[7] 1 to check leases; 0 after an outage, until workers had time to renew them
-- ARGV[8] how many jobs make a queue full   ARGV[9] the prefix of the streams of held starts
-- ARGV[10] the number of characters of our prefix in the name of a queue
-- Returns the number of events published, the queues that are full or have held starts (for each its name, its number of
--         jobs and its number of held starts, -1 when that cannot be read), the number of event streams,
--         in how many ms the next timer is due ("" for none), a list of errors, 1 if all live coordinators read tokens with
--         a secret, and the names of the live coordinators, sorted.
--
-- A lease or a timer is removed only after its event is written. An error, such as a key of a wrong type, is kept, and
-- the rest of the sweep goes on.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local grace, max_entries = tonumber(ARGV[3]), tonumber(ARGV[4])
local published = 0

-- fakeredis has no sha1hex. Any event stream is correct; another one only misses the coordinator's cache.
local sha1hex = redis.sha1hex or function() return "00000000" end
local function events_of(execution)
  return ARGV[1] .. (tonumber(string.sub(sha1hex(execution), 1, 8), 16) % tonumber(ARGV[2]))
end

local function publish(execution, ...)
  local event = run("XADD", events_of(execution), "*", ...)
  local is_published = not (type(event) == "table" and event.err)
  published = published + (is_published and 1 or 0)
  return is_published
end

-- A lease is <execution>|<step>|<run_id>|<attempt>|<dispatch>. A member of any other form is not ours, and is dropped.
-- The dispatch is the public part of a token: enough for a lost event, and not for a result.
-- Returns whether nothing is left to be published.
local function publish_lost(lease, reason, ...)
  local execution, step, run_id, attempt, token = string.match(lease, "^(.-)|(.-)|(.-)|(.-)|(.-)$")
  return not execution or publish(execution, "type", "lost", "execution", execution, "step", step,
    "run_id", run_id, "attempt", attempt, "token", token, "reason", reason, ...)
end

-- The reply of a read, nil after an error.
local function query(...)
  local reply = run(...)
  if type(reply) == "table" and reply.err then
    return nil
  end
  return reply
end

-- The sequence of the first job that waits in a queue; `first` is the start of the queue's range. Jobs with a lower
-- sequence have left the queue. Infinite for an empty queue, nil when none of the first ten jobs has a sequence.
local function head_of(queue, first)
  for at = 0, 9 do
    local id = query("LINDEX", "rq:queue:" .. queue, at)
    if not id then
      return at == 0 and math.huge or nil
    end
    local lease = job_lease(id, query("HGET", "rq:job:" .. id, "description"))
    local score = tonumber(query("ZSCORE", KEYS[1], lease or "") or "") or 0
    if score >= first and score < first + SEQUENCES_PER_QUEUE then
      return score
    end
  end
end

-- An entry of the list of held starts may be left after an error. Where no stream has held starts, the list is deleted.
local queues, limited, is_any_held = query("HGETALL", KEYS[3]) or {}, {}, false
for n = 1, #queues, 2 do
  local waiting = query("LLEN", "rq:queue:" .. queues[n]) or 0
  local held = query("XLEN", ARGV[9] .. string.sub(queues[n], ARGV[10] + 1))
  is_any_held = is_any_held or held ~= 0
  if waiting >= tonumber(ARGV[8]) or (held or 0) > 0 then
    limited[#limited + 1], limited[#limited + 2] = queues[n], tostring(waiting)
    limited[#limited + 1] = tostring(held or -1)
  end
end
if not is_any_held and query("HLEN", KEYS[6]) ~= 0 then
  run("DEL", KEYS[6])
end
if ARGV[7] == "1" then
  local due = query("ZRANGEBYSCORE", KEYS[1], "-inf", now, "WITHSCORES", "LIMIT", 0, max_entries) or {}
  for i = 1, #due, 2 do
    local is_unstarted = tonumber(due[i + 1]) % 1 > 0
    if publish_lost(due[i],
        is_unstarted and "its job left the queue and no worker started it" or "its worker stopped beating") then
      run("ZREM", KEYS[1], due[i])
    end
  end
end

-- Jobs that left their queue and are not started yet become due after the grace time. Half a millisecond in the
-- score marks them as not started.
local unstarted_due = string.format("%.1f", now + grace + 0.5)
local function set_due(leases)
  local args = {}
  for n, lease in ipairs(leases) do
    args[#args + 1], args[#args + 2] = unstarted_due, lease
    if #args >= 2000 or n == #leases then
      run("ZADD", KEYS[1], unpack(args))
      args = {}
    end
  end
end

for n = 1, #queues, 2 do
  local queue, last = queues[n], tonumber(queues[n + 1]) or 0
  local first = math.floor(last / SEQUENCES_PER_QUEUE) * SEQUENCES_PER_QUEUE
  local head = head_of(queue, first)
  if head and first >= FIRST_SEQUENCE then
    local below = "(" .. format_score(math.min(head, first + SEQUENCES_PER_QUEUE))
    set_due(query("ZRANGEBYSCORE", KEYS[1], format_score(first), below, "LIMIT", 0, 10 * max_entries) or {})
  end
end

-- The error that RQ stored last for a failed job, as the field of an event; nothing without one. An error of this read is
-- not kept: the event is published all the same, with less of a reason.
local MAX_RQ_ERROR = 16384
local function rq_error(job)
  local results = redis.pcall("XREVRANGE", "rq:results:" .. job, "+", "-", "COUNT", 1)
  local fields = not results.err and results[1] and results[1][2] or {}
  for n = 1, #fields, 2 do
    if fields[n] == "exc_string" and #fields[n + 1] <= MAX_RQ_ERROR then
      return "rq_error", fields[n + 1]
    end
  end
end

-- A job that RQ lists as failed is a step whose worker died before it published a result: the harness never fails.
for n = 1, #queues, 2 do
  local failed = "rq:failed:" .. queues[n]
  for _, id in ipairs(query("ZRANGE", failed, 0, max_entries - 1) or {}) do
    local lease = job_lease(id, query("HGET", "rq:job:" .. id, "description"))
    if publish_lost(lease or "", "its work-horse died", rq_error(id)) then
      run("ZREM", failed, id)
      run("DEL", "rq:job:" .. id, "rq:results:" .. id)
    end
  end
end

-- A timer is <kind>|<execution>|<step>|<token>. A member of any other form is dropped.
for _, timer in ipairs(query("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, max_entries) or {}) do
  local kind, execution, step, token = string.match(timer, "^(.-)|(.-)|(.-)|(.-)$")
  if not kind or publish(execution, "type", kind, "execution", execution, "step", step, "token", token) then
    run("ZREM", KEYS[2], timer)
  end
end
local next_timer = query("ZRANGE", KEYS[2], 0, 0, "WITHSCORES") or {}

-- A heartbeat of this release is a time in ms and a half. A coordinator of 0.1.1 writes whole ms: it does not understand
-- a lost event that names the dispatch id, so while one of those is alive no coordinator gives a token a secret. The half is
-- part of a command that is sent anyway, and readers of the time ignore it.
run("ZADD", KEYS[4], string.format("%.1f", now + 0.5), ARGV[5])
run("ZREMRANGEBYSCORE", KEYS[4], "-inf", now - ARGV[6])

-- A job that was dispatched while there were more streams still names one of those, so all of them stay in use.
local streams = tonumber(query("GET", KEYS[5]) or "") or 0
if streams < tonumber(ARGV[2]) then
  run("SET", KEYS[5], ARGV[2])
  streams = tonumber(ARGV[2])
end
local alive, has_secrets = {}, "1"
local heartbeats = query("ZRANGE", KEYS[4], 0, -1, "WITHSCORES") or {}
for n = 1, #heartbeats, 2 do
  alive[#alive + 1] = heartbeats[n]
  if tonumber(heartbeats[n + 1]) % 1 == 0 then
    has_secrets = "0"
  end
end
table.sort(alive)
return {
  tostring(published), limited, tostring(streams),
  next_timer[2] and string.format("%.0f", tonumber(next_timer[2]) - now) or "", kept_errors, has_secrets, alive,
}
