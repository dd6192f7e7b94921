-- Register a spec and its schedule under a name, and release the spec that had the name before. Without a spec,
-- only release the name.
--
-- KEYS[1] the definitions   KEYS[2] the spec's key   KEYS[3] the schedules   KEYS[4] the timers
-- KEYS[5] the start entries of open scheduled executions
-- ARGV[1] the name   ARGV[2] the workflow_id, "" for none   ARGV[3] the document
-- ARGV[4] the prefix of specs   ARGV[5] the retention in s
-- ARGV[6] the schedule that was loaded (JSON), ARGV[7] the new schedule; "" for none in both
-- ARGV[8] the schedule's member among the timers   ARGV[9] when it is due in ms, "" for never
-- ARGV[10..] open executions of a schedule that is removed
-- Returns 1 when written, 0 when another document has the same workflow_id, -1 when the schedule has changed since
--         it was loaded, -2 when the name is not registered and there is nothing to release.
local known = redis.call("HGET", KEYS[2], "document")
if ARGV[2] ~= "" and known and known ~= ARGV[3] then
  return 0
end
if (redis.call("HGET", KEYS[3], ARGV[1]) or "") ~= ARGV[6] then
  return -1
end
local before = redis.call("HGET", KEYS[1], ARGV[1])
if ARGV[2] == "" and not before and ARGV[6] == "" then
  return -2
end

local old = before and before ~= ARGV[2] and ARGV[4] .. before
if old then
  redis.call("HGET", old, "registered")
end

-- All keys but the timers and the open executions were read above, so that their types are right. Those come first.
if ARGV[9] == "" then
  redis.call("ZREM", KEYS[4], ARGV[8])
else
  redis.call("ZADD", KEYS[4], ARGV[9], ARGV[8])
end
for n = 10, #ARGV do
  redis.call("HDEL", KEYS[5], ARGV[n])
end
if ARGV[7] == "" then
  redis.call("HDEL", KEYS[3], ARGV[1])
else
  redis.call("HSET", KEYS[3], ARGV[1], ARGV[7])
end

if before == ARGV[2] and known then
  return 1
end
if old then
  if redis.call("HINCRBY", old, "registered", -1) <= 0
    and tonumber(redis.call("HGET", old, "executions") or 0) <= 0 then
    redis.call("EXPIRE", old, ARGV[5])
  end
end
if ARGV[2] == "" then
  redis.call("HDEL", KEYS[1], ARGV[1])
  return 1
end
local time = redis.call("TIME")
redis.call("HSET", KEYS[2], "document", ARGV[3], "registered_ms", time[1] * 1000 + math.floor(time[2] / 1000))
redis.call("HINCRBY", KEYS[2], "registered", 1)
redis.call("PERSIST", KEYS[2])
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
return 1
