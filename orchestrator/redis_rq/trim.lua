-- Drop what every group has acknowledged from the event streams, and nothing else.
--
-- KEYS[1..] the streams
-- Returns how many entries were dropped.
local function is_before(a, b)
  local a_ms, a_n = string.match(a, "^(%d+)-(%d+)$")
  local b_ms, b_n = string.match(b, "^(%d+)-(%d+)$")
  a_ms, a_n, b_ms, b_n = tonumber(a_ms), tonumber(a_n), tonumber(b_ms), tonumber(b_n)
  return a_ms < b_ms or (a_ms == b_ms and a_n < b_n)
end

local dropped = 0
for _, stream in ipairs(KEYS) do
  local oldest = nil
  if redis.call("EXISTS", stream) == 1 then
    for _, flat in ipairs(redis.call("XINFO", "GROUPS", stream)) do
      local group = {}
      for i = 1, #flat, 2 do
        group[flat[i]] = flat[i + 1]
      end
      local first = group["last-delivered-id"]
      if group["pending"] > 0 then
        first = redis.call("XPENDING", stream, group["name"])[2]
      end
      if not oldest or is_before(first, oldest) then
        oldest = first
      end
    end
  end
  if oldest then
    dropped = dropped + redis.call("XTRIM", stream, "MINID", oldest)
  end
end
return dropped
