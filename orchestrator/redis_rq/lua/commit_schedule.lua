-- Write a decision about a schedule, unless the schedule has changed since it was loaded: the schedule, its timer,
-- its starts and the acknowledgement of the event, all or nothing.
--
-- KEYS[1] the schedules   KEYS[2] the start entries of open scheduled executions   KEYS[3] the timers
-- KEYS[4] the stream of starts
-- ARGV    the name of the schedule, the JSON that was loaded, the new JSON
--         its member among the timers, and when it is due in ms, "" for never
--         1 to acknowledge an event and then its stream, the group and its entry id; else 0
--         n, then n executions that are no longer open
--         n, then n executions to start, and 1 to count them as open
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
if next_arg() == "1" then
  local stream, group, id = next_arg(), next_arg(), next_arg()
  local pending = redis.pcall("XPENDING", stream, group, id, id, 1)
  if pending.err or #pending == 0 then
    return -2
  end
  redis.call("XACK", stream, group, id)
end

redis.call("HSET", KEYS[1], name, after)
if due == "" then
  redis.call("ZREM", KEYS[3], member)
else
  redis.call("ZADD", KEYS[3], due, member)
end
for _ = 1, tonumber(next_arg()) do
  redis.call("HDEL", KEYS[2], next_arg())
end
local starts = {}
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
return 1
