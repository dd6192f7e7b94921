-- Put right what lies beside a record, unless the record has changed since somebody looked at it. The record
-- itself is never written.
--
-- KEYS[1] the record   ARGV[1] the version it was looked at, "" when there was none
-- ARGV[2..] the repairs: how many words, then the words, which are a command or
--   lease <leases> <member>
--     a dispatch that nobody would ever call lost is due at once
--   place <who is in> <who waits> <member> take|wait|leave
--     a place under a concurrency key is taken, waited for or left, and given on to whoever is next
-- Returns 1, or 0 when the record is at another version.
if (redis.call("HGET", KEYS[1], "version") or "") ~= ARGV[1] then
  return 0
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function lease(leases, member)
  local score = redis.call("ZSCORE", leases, member)
  if not score or tonumber(score) >= WAITING then
    redis.call("ZADD", leases, now, member)
  end
end

local function place(held, line, member, wish)
  if wish == "leave" then
    redis.call("ZREM", held, member)
  end
  if wish ~= "wait" then
    redis.call("ZREM", line, member)
  end
  if wish == "take" then
    redis.call("ZADD", held, "NX", now, member)
  elseif wish == "wait" and not redis.call("ZSCORE", held, member) then
    local last = redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2]
    redis.call("ZADD", line, "NX", (tonumber(last) or 0) + 1, member)
  end
  hand_on(held, line)
end

local own, at = { lease = lease, place = place }, 2
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  local repair = own[ARGV[at + 1]]
  if repair then
    repair(unpack(ARGV, at + 2, at + words))
  else
    redis.call(unpack(ARGV, at + 1, at + words))
  end
  at = at + words + 1
end
return 1
