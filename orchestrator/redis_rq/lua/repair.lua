-- Repair the keys of a record, unless the record has changed since it was checked. The record itself is never
-- written.
--
-- KEYS[1] the record   KEYS[2] the concurrency keys that are in use
-- ARGV[1] the version that was checked, "" when there was no record
-- ARGV[2..] the repairs, each: the number of its args, then the args, which are a Redis command or
--   lease <leases> <member>
--     a dispatch that would never be detected as lost becomes due now
--   slot <holders> <waiters> <member> take|wait|leave
--     a slot of a concurrency key is taken, waited for or left; then free slots are granted
-- Returns 1, or 0 when the record is at another version.
if (redis.call("HGET", KEYS[1], "version") or "") ~= ARGV[1] then
  return 0
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function repair_lease(leases, member)
  local score = redis.call("ZSCORE", leases, member)
  if not score or tonumber(score) >= FIRST_SEQUENCE then
    redis.call("ZADD", leases, now, member)
  end
end

local function repair_slot(holders, waiters, member, action)
  if action == "leave" then
    redis.call("ZREM", holders, member)
  end
  if action ~= "wait" then
    redis.call("ZREM", waiters, member)
  end
  if action == "take" then
    redis.call("ZADD", holders, "NX", now, member)
  elseif action == "wait" and not redis.call("ZSCORE", holders, member) then
    local last = redis.call("ZRANGE", waiters, -1, -1, "WITHSCORES")[2]
    redis.call("ZADD", waiters, "NX", (tonumber(last) or 0) + 1, member)
  end
  grant_slots(holders, waiters, redis.call)
  note_slots(KEYS[2], holders, waiters)
end

local repairs, at = { lease = repair_lease, slot = repair_slot }, 2
while at <= #ARGV do
  local args = tonumber(ARGV[at])
  local repair = repairs[ARGV[at + 1]]
  if repair then
    repair(unpack(ARGV, at + 2, at + args))
  else
    redis.call(unpack(ARGV, at + 1, at + args))
  end
  at = at + args + 1
end
return 1
