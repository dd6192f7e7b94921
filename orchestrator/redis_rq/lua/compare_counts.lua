-- Compare the counters of open executions, per group and per spec, with the executions that are open.
--
-- KEYS[1] the groups   KEYS[2..] the status indexes of open executions
-- ARGV[1] the prefix of records   ARGV[2] the prefix of specs
-- ARGV[3] the retention in s, to correct wrong counters; "" to leave them
-- ARGV[4..] the workflow_ids of the specs to check
-- Returns the wrong counters, four values each: "group" or "spec", its name, the counter, the actual number.
local open_by_group, open_by_spec = {}, {}
for n = 2, #KEYS do
  for _, execution in ipairs(redis.call("ZRANGE", KEYS[n], 0, -1)) do
    local found = redis.pcall("HMGET", ARGV[1] .. execution, "workflow_id", "group")
    if found[1] then
      open_by_spec[found[1]] = (open_by_spec[found[1]] or 0) + 1
    end
    if found[2] then
      open_by_group[found[2]] = (open_by_group[found[2]] or 0) + 1
    end
  end
end

local wrong = {}
-- Returns whether the counter is to be corrected.
local function report(kind, name, counter, actual)
  for _, value in ipairs({ kind, name, tostring(counter), tostring(actual) }) do
    wrong[#wrong + 1] = value
  end
  return ARGV[3] ~= ""
end

local groups = redis.call("HGETALL", KEYS[1])
for n = 1, #groups, 2 do
  open_by_group[groups[n]] = open_by_group[groups[n]] or 0
end
for group, actual in pairs(open_by_group) do
  local counter = redis.call("HGET", KEYS[1], group) or "0"
  if tonumber(counter) ~= actual and report("group", group, counter, actual) then
    if actual > 0 then
      redis.call("HSET", KEYS[1], group, actual)
    else
      redis.call("HDEL", KEYS[1], group)
    end
  end
end

for n = 4, #ARGV do
  local spec = ARGV[2] .. ARGV[n]
  local actual, counter = open_by_spec[ARGV[n]] or 0, redis.call("HGET", spec, "executions") or "0"
  if tonumber(counter) ~= actual and redis.call("EXISTS", spec) == 1
    and report("spec", ARGV[n], counter, actual) then
    redis.call("HSET", spec, "executions", actual)
    if actual > 0 then
      redis.call("PERSIST", spec)
    elseif tonumber(redis.call("HGET", spec, "registered") or 0) <= 0 then
      redis.call("EXPIRE", spec, ARGV[3])
    end
  end
end
return wrong
