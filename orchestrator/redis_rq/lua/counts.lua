-- Compare how many executions are open, of each group and of each spec, with what is kept.
--
-- KEYS[1] the groups   KEYS[2..] the indexes of executions that have not ended
-- ARGV[1] the prefix of records   ARGV[2] the prefix of specs
-- ARGV[3] the retention in s, to put right what is wrong; "" to leave it
-- ARGV[4..] the workflow_ids of the specs to look at
-- Returns what is wrong: "group" or "spec", its name, what is kept, what there is, and so on.
local by_group, by_spec = {}, {}
for n = 2, #KEYS do
  for _, execution in ipairs(redis.call("ZRANGE", KEYS[n], 0, -1)) do
    local found = redis.pcall("HMGET", ARGV[1] .. execution, "workflow_id", "group")
    if found[1] then
      by_spec[found[1]] = (by_spec[found[1]] or 0) + 1
    end
    if found[2] then
      by_group[found[2]] = (by_group[found[2]] or 0) + 1
    end
  end
end

local wrong = {}
local function differ(kind, name, kept, counted)
  for _, word in ipairs({ kind, name, tostring(kept), tostring(counted) }) do
    wrong[#wrong + 1] = word
  end
  return ARGV[3] ~= ""
end

local groups = redis.call("HGETALL", KEYS[1])
for n = 1, #groups, 2 do
  by_group[groups[n]] = by_group[groups[n]] or 0
end
for group, counted in pairs(by_group) do
  local kept = redis.call("HGET", KEYS[1], group) or "0"
  if tonumber(kept) ~= counted and differ("group", group, kept, counted) then
    if counted > 0 then
      redis.call("HSET", KEYS[1], group, counted)
    else
      redis.call("HDEL", KEYS[1], group)
    end
  end
end

for n = 4, #ARGV do
  local spec = ARGV[2] .. ARGV[n]
  local counted, kept = by_spec[ARGV[n]] or 0, redis.call("HGET", spec, "executions") or "0"
  if tonumber(kept) ~= counted and redis.call("EXISTS", spec) == 1
    and differ("spec", ARGV[n], kept, counted) then
    redis.call("HSET", spec, "executions", counted)
    if counted > 0 then
      redis.call("PERSIST", spec)
    elseif tonumber(redis.call("HGET", spec, "registered") or 0) <= 0 then
      redis.call("EXPIRE", spec, ARGV[3])
    end
  end
end
return wrong
