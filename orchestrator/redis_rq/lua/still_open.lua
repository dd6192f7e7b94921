-- Which executions of a schedule have not ended, or will begin when somebody answers their start.
--
-- KEYS[1] the entries of the starts of open executions   KEYS[2] the stream of starts
-- ARGV[1] the prefix of the keys that lead from an execution id to its record   ARGV[2] that of records
-- ARGV[3] the group   ARGV[4] how many statuses are final, then those, then the executions
-- Returns those of the executions that are still open.
local finals, first = {}, 5 + tonumber(ARGV[4])
for n = 5, first - 1 do
  finals[ARGV[n]] = true
end

-- Where the group has got to: what it was not given yet is unanswered too.
local reached
for _, flat in ipairs(redis.call("EXISTS", KEYS[2]) == 1 and redis.call("XINFO", "GROUPS", KEYS[2]) or {}) do
  local group = {}
  for i = 1, #flat, 2 do
    group[flat[i]] = flat[i + 1]
  end
  if group["name"] == ARGV[3] then
    reached = group["last-delivered-id"]
  end
end

local function parts(id)
  local ms, n = string.match(id, "^(%d+)-(%d+)$")
  return tonumber(ms), tonumber(n)
end

local function is_unanswered(entry)
  if not reached then
    return true  -- no coordinator has ever been here
  end
  local ms, n = parts(entry)
  local reached_ms, reached_n = parts(reached)
  if ms > reached_ms or (ms == reached_ms and n > reached_n) then
    return true
  end
  return #redis.call("XPENDING", KEYS[2], ARGV[3], entry, entry, 1) > 0
end

local open = {}
for n = first, #ARGV do
  local record = redis.call("GET", ARGV[1] .. ARGV[n])
  local is_open
  if record then
    local status = redis.call("HGET", ARGV[2] .. record, "status")
    is_open = status and not finals[status]
  else
    local entry = redis.call("HGET", KEYS[1], ARGV[n])
    is_open = entry and is_unanswered(entry)
  end
  if is_open then
    open[#open + 1] = ARGV[n]
  end
end
return open
