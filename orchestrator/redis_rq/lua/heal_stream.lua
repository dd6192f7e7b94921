-- Repair a stream whose last id lies far in the future. Any client can choose such an id, and if it is the largest of
-- all, no further entry can be added.
--
-- KEYS[1] the stream   ARGV[1] our group, "" for a stream without one   ARGV[2] from which time in ms an id is absurd
-- ARGV[3] the new last id, unless an entry with a sensible id is newer
-- Returns 1 when the stream is repaired, 0 when that is not needed, -1 when an entry with such an id is not handled yet.
--
-- Entries with absurd ids are deleted: the last id cannot be smaller than that of an entry. While the stream takes entries,
-- every group handles them first. When it takes none, nothing waits: an entry that our group has not handled is added
-- again under a new id. A coordinator may be unable to handle anything until the stream is repaired.
--
-- Entries with sensible ids stay, pending ones too. They are older, so they have all been delivered, and the group can
-- go on after the new last id. Without that, new entries would have smaller ids than the last one that was delivered.
--
-- Valkey 9 does not set the last id below that of a deleted entry. There the stream is copied to a new key, with its groups,
-- consumers and pending entries, and the copy takes its place: an error on the way leaves the stream where it is.
local function is_absurd(id)
  return not is_smaller(string.match(id, "^%d+"), ARGV[2])
end

local function is_before(id, other)
  local ms, number = string.match(id, "^(%d+)-(%d+)$")
  local other_ms, other_number = string.match(other, "^(%d+)-(%d+)$")
  return is_smaller(ms, other_ms) or ms == other_ms and is_smaller(number, other_number)
end

local function is_handled(group, id)
  return not is_before(group["last-delivered-id"], id)
    and #redis.call("XPENDING", KEYS[1], group["name"], id, id, 1) == 0
end

local function copy_group(copy, group, last_id)
  local name = group["name"]
  local delivered = is_absurd(group["last-delivered-id"]) and last_id or group["last-delivered-id"]
  redis.call("XGROUP", "CREATE", copy, name, delivered)
  for _, flat in ipairs(redis.call("XINFO", "CONSUMERS", KEYS[1], name)) do
    redis.call("XGROUP", "CREATECONSUMER", copy, name, fields(flat)["name"])
  end
  local count = redis.call("XPENDING", KEYS[1], name)[1]
  for _, one in ipairs(count > 0 and redis.call("XPENDING", KEYS[1], name, "-", "+", count) or {}) do
    local id, consumer, idle_ms, deliveries = unpack(one)
    redis.call("XCLAIM", copy, name, consumer, 0, id, "IDLE", idle_ms, "RETRYCOUNT", deliveries, "FORCE", "JUSTID")
  end
end

local function copy_stream(groups, last_id)
  local copy = KEYS[1] .. ":copy"
  redis.call("DEL", copy)
  for _, entry in ipairs(redis.call("XRANGE", KEYS[1], "-", "+")) do
    redis.call("XADD", copy, entry[1], unpack(entry[2]))
  end
  if redis.call("EXISTS", copy) == 0 then
    redis.call("XADD", copy, last_id, "x", "")
    redis.call("XDEL", copy, last_id)
  end
  for _, group in ipairs(groups) do
    copy_group(copy, group, last_id)
  end
  redis.call("RENAME", copy, KEYS[1])
end

if redis.call("EXISTS", KEYS[1]) == 0 then
  return 0
end
local last = fields(redis.call("XINFO", "STREAM", KEYS[1]))["last-generated-id"]
if not is_absurd(last) then
  return 0
end
local is_exhausted = string.match(last, "^%d+") == "18446744073709551615"
local groups, own = {}, nil
for n, flat in ipairs(redis.call("XINFO", "GROUPS", KEYS[1])) do
  groups[n] = fields(flat)
  if groups[n]["name"] == ARGV[1] then
    own = groups[n]
  end
end
local absurd, kept = redis.call("XRANGE", KEYS[1], ARGV[2], "+"), {}
for _, entry in ipairs(absurd) do
  if not is_exhausted then
    for _, group in ipairs(groups) do
      if not is_handled(group, entry[1]) then
        return -1
      end
    end
  end
  if not own or not is_handled(own, entry[1]) then
    kept[#kept + 1] = entry[2]
  end
end
for _, entry in ipairs(absurd) do
  if own then
    redis.call("XACK", KEYS[1], ARGV[1], entry[1])
  end
  redis.call("XDEL", KEYS[1], entry[1])
end
local newest = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", 1)[1]
local last_id = newest and newest[1] or ARGV[3]
local set = redis.pcall("XSETID", KEYS[1], last_id)
if set["err"] and string.find(set["err"], "max_deleted_entry_id", 1, true) then
  copy_stream(groups, last_id)
elseif set["err"] then
  return redis.error_reply(set["err"])
else
  for _, group in ipairs(groups) do
    if is_absurd(group["last-delivered-id"]) then
      redis.call("XGROUP", "SETID", KEYS[1], group["name"], last_id)
    end
  end
end
for _, entry in ipairs(kept) do
  redis.call("XADD", KEYS[1], "*", unpack(entry))
end
return 1
