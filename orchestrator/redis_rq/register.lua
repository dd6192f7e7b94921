-- Keep a spec under a name, and let go of the one that had the name before.
--
-- KEYS[1] the definitions   KEYS[2] the spec's key
-- ARGV[1] the name   ARGV[2] the workflow_id   ARGV[3] the document   ARGV[4] the prefix of specs' keys
-- ARGV[5] the retention in s
-- Returns 1, or 0 when another document has the same workflow_id.
local known = redis.call("HGET", KEYS[2], "document")
if known and known ~= ARGV[3] then
  return 0
end
local before = redis.call("HGET", KEYS[1], ARGV[1])
if before == ARGV[2] and known then
  return 1
end
if before and before ~= ARGV[2] then
  local old = ARGV[4] .. before
  if redis.call("HINCRBY", old, "registered", -1) <= 0
    and tonumber(redis.call("HGET", old, "executions") or 0) <= 0 then
    redis.call("EXPIRE", old, ARGV[5])
  end
end
redis.call("HSET", KEYS[2], "document", ARGV[3])
redis.call("HINCRBY", KEYS[2], "registered", 1)
redis.call("PERSIST", KEYS[2])
redis.call("HSET", KEYS[1], ARGV[1], ARGV[2])
return 1
