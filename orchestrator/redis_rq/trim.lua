-- Drop what nobody needs any more: events that every group has acknowledged, executions from the indexes once
-- they have expired, and consumers that are gone and have left nothing behind.
--
-- KEYS[1..n] the streams   KEYS[n+1] the executions that have ended
-- ARGV[1] n   ARGV[2] the retention in ms   ARGV[3] our group   ARGV[4] after how many idle ms a consumer is gone
-- ARGV[5] how many executions to drop at the most   ARGV[6..9] what the keys of records, of histories, of
-- executions and of indexes begin with
-- Returns how many entries were dropped from the streams, and how many executions.
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

-- The keys of an execution have a term of their own, beyond its retention: until then its record says where it
-- is listed. Of one whose record is gone, the indexes of final states are all that is known.
local time, ended = redis.call("TIME"), KEYS[streams + 1]
local records, histories, executions, indexes = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local over = redis.call("ZRANGEBYSCORE", ended, "-inf", time[1] * 1000 - ARGV[2], "LIMIT", 0, ARGV[5])
for _, id in ipairs(over) do
  local record = redis.call("HMGET", records .. id, "name", "group", "labels")
  if record[1] then
    redis.call("ZREM", indexes .. "name:" .. record[1], id)
  end
  if record[2] then
    redis.call("ZREM", indexes .. "group:" .. record[2], id)
  end
  local is_known, labels = pcall(cjson.decode, record[3] or "{}")
  for name, value in pairs(is_known and labels or {}) do
    redis.call("ZREM", indexes .. "label:" .. name .. "=" .. value, id)
  end
  for _, status in ipairs({ "complete", "halted", "failed", "cancelled" }) do
    redis.call("ZREM", indexes .. "status:" .. status, id)
  end
  redis.call("DEL", records .. id, histories .. id, executions .. (string.match(id, "#(.*)$") or id))
  redis.call("ZREM", ended, id)
end
return { dropped, #over }
