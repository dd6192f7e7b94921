-- Find the executions of a schedule that are open: they have not ended, or their start is not answered yet.
--
-- KEYS[1] the start entries of open scheduled executions   KEYS[2] the stream of starts   KEYS[3] the held starts
-- ARGV[1] the prefix of the pointers from execution ids to records   ARGV[2] the prefix of records
-- ARGV[3] the group   ARGV[4] the number of final statuses, then those, then the executions to check
-- Returns the executions that are open.
local final, first = {}, 5 + tonumber(ARGV[4])
for n = 5, first - 1 do
  final[ARGV[n]] = true
end

-- The last entry that was delivered to the group: later entries are not answered either.
local last_delivered
for _, flat in ipairs(redis.call("EXISTS", KEYS[2]) == 1 and redis.call("XINFO", "GROUPS", KEYS[2]) or {}) do
  local group = {}
  for i = 1, #flat, 2 do
    group[flat[i]] = flat[i + 1]
  end
  if group["name"] == ARGV[3] then
    last_delivered = group["last-delivered-id"]
  end
end

local function parse_id(id)
  local ms, n = string.match(id, "^(%d+)-(%d+)$")
  return tonumber(ms), tonumber(n)
end

local function is_unanswered(entry)
  if not last_delivered then
    return true -- no coordinator has opened the stream yet
  end
  local ms, n = parse_id(entry)
  local last_ms, last_n = parse_id(last_delivered)
  if ms > last_ms or (ms == last_ms and n > last_n) then
    return true
  end
  return #redis.call("XPENDING", KEYS[2], ARGV[3], entry, entry, 1) > 0 or redis.call("HEXISTS", KEYS[3], entry) == 1
end

local open = {}
for n = first, #ARGV do
  local record = redis.call("GET", ARGV[1] .. ARGV[n])
  local is_open
  if record then
    local status = redis.call("HGET", ARGV[2] .. record, "status")
    is_open = status and not final[status]
  else
    local entry = redis.call("HGET", KEYS[1], ARGV[n])
    is_open = entry and is_unanswered(entry)
  end
  if is_open then
    open[#open + 1] = ARGV[n]
  end
end
return open
