-- Drop what nobody needs any more: events that every group has acknowledged, executions from the indexes once
-- they have expired, and consumers that are gone and have left nothing behind.
--
-- KEYS[1..n] the streams   KEYS[n+1] the executions that have ended, by when   KEYS[n+2] those that have a retention
-- of their own, by when they go
-- ARGV[1] n   ARGV[2] the retention in ms   ARGV[3] our group   ARGV[4] after how many idle ms a consumer is gone
-- ARGV[5] how many executions to drop at the most   ARGV[6..10] what the keys of records, of histories, of
-- lines, of executions and of indexes begin with
-- Returns how many entries were dropped from the streams, and how many executions.
--
-- Ids are compared as digits: both of their parts may have 64 bits, and a number of Lua has 53.
local function is_smaller(a, b)
  return #a < #b or (#a == #b and a < b)
end

local function is_before(a, b)
  local a_ms, a_n = string.match(a, "^(%d+)-(%d+)$")
  local b_ms, b_n = string.match(b, "^(%d+)-(%d+)$")
  return is_smaller(a_ms, b_ms) or (a_ms == b_ms and is_smaller(a_n, b_n))
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

-- A member is <execution>|<the indexes it is in, as JSON>. The keys of an execution may be gone before we come,
-- and others may have taken its names meanwhile: what has not ended is not ours to drop.
local is_final = { complete = true, halted = true, failed = true, cancelled = true }
local now = redis.call("TIME")[1] * 1000
local records, histories, lines, executions, indexes = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local function drop(ended, before)
  local over = redis.call("ZRANGEBYSCORE", ended, "-inf", before, "LIMIT", 0, ARGV[5])
  for _, member in ipairs(over) do
    local id, listed = string.match(member, "^(.-)|(.*)$")
    local status = id and redis.call("HGET", records .. id, "status")
    if id and (not status or is_final[status]) then
      local is_known, names = pcall(cjson.decode, listed)
      for _, name in ipairs(is_known and type(names) == "table" and names or {}) do
        redis.call("ZREM", indexes .. tostring(name), id)
      end
      for final in pairs(is_final) do
        redis.call("ZREM", indexes .. "status:" .. final, id)
      end
      redis.call("DEL", records .. id, histories .. id, lines .. id)
      local execution = executions .. (string.match(id, "#(.*)$") or id)
      if redis.call("GET", execution) == id then
        redis.call("DEL", execution)
      end
    end
    redis.call("ZREM", ended, member)
  end
  return #over
end
return { dropped, drop(KEYS[streams + 1], now - ARGV[2]) + drop(KEYS[streams + 2], now) }
