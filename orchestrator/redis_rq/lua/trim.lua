-- Delete what is no longer needed: events that every group has acknowledged, executions whose retention has ended,
-- and idle consumers without pending events.
--
-- KEYS[1..n] the streams   KEYS[n+1] the ended executions, by their end   KEYS[n+2] the ended executions with a
-- retention of their own, by when they are deleted
-- ARGV[1] n   ARGV[2] the retention in ms   ARGV[3] our group   ARGV[4] after how many idle ms a consumer is deleted
-- ARGV[5] the maximum number of executions to delete   ARGV[6..11] the prefixes of records, histories, step logs,
-- execution pointers and indexes, and of the channels on which a change of an execution is published
-- Returns the number of entries deleted from the streams, and the number of executions.
local function is_before(a, b)
  local a_ms, a_n = string.match(a, "^(%d+)-(%d+)$")
  local b_ms, b_n = string.match(b, "^(%d+)-(%d+)$")
  return is_smaller(a_ms, b_ms) or (a_ms == b_ms and is_smaller(a_n, b_n))
end

local streams, trimmed = tonumber(ARGV[1]), 0
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
    trimmed = trimmed + redis.call("XTRIM", stream, "MINID", oldest)
  end
end

-- A member is <execution>|<its indexes, as JSON>. The record may be gone already, or another execution may have the
-- same id by now: an execution that has not ended is never deleted.
local is_final = { complete = true, halted = true, failed = true, cancelled = true }
local now = redis.call("TIME")[1] * 1000
local records, histories, step_logs, executions, indexes = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local function delete_ended(ended, before)
  local expired = redis.call("ZRANGEBYSCORE", ended, "-inf", before, "LIMIT", 0, ARGV[5])
  for _, member in ipairs(expired) do
    local id, listed = string.match(member, "^(.-)|(.*)$")
    local status = id and redis.call("HGET", records .. id, "status")
    if id and (not status or is_final[status]) then
      local is_json, names = pcall(cjson.decode, listed)
      for _, name in ipairs(is_json and type(names) == "table" and names or {}) do
        redis.call("ZREM", indexes .. tostring(name), id)
      end
      for final in pairs(is_final) do
        redis.call("ZREM", indexes .. "status:" .. final, id)
      end
      redis.call("DEL", records .. id, histories .. id, step_logs .. id)
      redis.pcall("PUBLISH", ARGV[11] .. id, "")
      local execution = executions .. (string.match(id, "#(.*)$") or id)
      if redis.call("GET", execution) == id then
        redis.call("DEL", execution)
      end
    end
    redis.call("ZREM", ended, member)
  end
  return #expired
end
return { trimmed, delete_ended(KEYS[streams + 1], now - ARGV[2]) + delete_ended(KEYS[streams + 2], now) }
