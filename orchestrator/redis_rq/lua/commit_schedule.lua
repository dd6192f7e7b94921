-- Write a decision about a schedule, unless the schedule has changed since it was loaded: the schedule, its timer,
-- its starts and the acknowledgement of the event.
--
-- KEYS[1] the schedules   KEYS[2] the start entries of open scheduled executions   KEYS[3] the timers
-- KEYS[4] the stream of starts
-- ARGV    the name of the schedule, the JSON that was loaded, the new JSON
--         its member among the timers, and when it is due in ms, "" for never
--         1 to acknowledge an event and then its stream, the group and its entry id; else 0
--         n, then n executions that are no longer open
--         n, then n executions to start, and 1 to count them as open
-- The starts come first, and the timer before the schedule: an error ends the script, the event stays pending, and is
-- handled again. A start that is written twice names the same execution, and only one of the two creates it.
-- Returns 1 when written, 0 when the schedule was changed or removed, -2 when the event is no longer pending.
local at = 1
local function next_arg()
  at = at + 1
  return ARGV[at - 1]
end

local name, before, after, member, due = next_arg(), next_arg(), next_arg(), next_arg(), next_arg()
if redis.call("HGET", KEYS[1], name) ~= before then
  return 0
end
local event
if next_arg() == "1" then
  event = { next_arg(), next_arg(), next_arg() }
  if not is_event_pending(unpack(event)) then
    return -2
  end
end
local ended, starts = {}, {}
for n = 1, tonumber(next_arg()) do
  ended[n] = next_arg()
end
for n = 1, tonumber(next_arg()) do
  starts[n] = next_arg()
end
local are_open = next_arg() == "1"

for _, execution in ipairs(starts) do
  local entry = redis.call("XADD", KEYS[4], "*", "workflow", name, "execution_id", execution, "schedule", name)
  if are_open then
    redis.call("HSET", KEYS[2], execution, entry)
  end
end
if due == "" then
  redis.call("ZREM", KEYS[3], member)
else
  redis.call("ZADD", KEYS[3], due, member)
end
redis.call("HSET", KEYS[1], name, after)
for _, execution in ipairs(ended) do
  redis.call("HDEL", KEYS[2], execution)
end
if event then
  redis.call("XACK", unpack(event))
end
return 1
