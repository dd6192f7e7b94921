-- Drop what nobody needs any more: events that every group has acknowledged, executions from the indexes once
-- they have expired, and consumers that are gone and have left nothing behind.
--
-- KEYS[1..n] the streams   KEYS[n+1..] the indexes of executions that ended
-- ARGV[1] n   ARGV[2] the retention in ms   ARGV[3] our group   ARGV[4] after how many idle ms a consumer is gone
-- Returns how many entries were dropped from the streams.
local function is_before(a, b)
  local a_ms, a_n = string.match(a, "^(%d+)-(%d+)$")
  local b_ms, b_n = string.match(b, "^(%d+)-(%d+)$")
  a_ms, a_n, b_ms, b_n = tonumber(a_ms), tonumber(a_n), tonumber(b_ms), tonumber(b_n)
  return a_ms < b_ms or (a_ms == b_ms and a_n < b_n)
end

local function fields(flat)
  local named = {}
  for i = 1, #flat, 2 do
    named[flat[i]] = flat[i + 1]
  end
  return named
end

local streams, dropped = tonumber(ARGV[1]), 0
for n = 1, streams do
  local stream, oldest = KEYS[n], nil
  if redis.call("EXISTS", stream) == 1 then
    for _, flat in ipairs(redis.call("XINFO", "GROUPS", stream)) do
      local group = fields(flat)
      local first = group["last-delivered-id"]
      if group["pending"] > 0 then
        first = redis.call("XPENDING", stream, group["name"])[2]
      end
      if not oldest or is_before(first, oldest) then
        oldest = first
      end
      if group["name"] == ARGV[3] then
        for _, one in ipairs(redis.call("XINFO", "CONSUMERS", stream, ARGV[3])) do
          local consumer = fields(one)
          if consumer["pending"] == 0 and consumer["idle"] >= tonumber(ARGV[4]) then
            redis.call("XGROUP", "DELCONSUMER", stream, ARGV[3], consumer["name"])
          end
        end
      end
    end
  end
  if oldest then
    dropped = dropped + redis.call("XTRIM", stream, "MINID", oldest)
  end
end

local time = redis.call("TIME")
for n = streams + 1, #KEYS do
  redis.call("ZREMRANGEBYSCORE", KEYS[n], "-inf", time[1] * 1000 - ARGV[2])
end
return dropped
