-- Repair a stream whose last id lies far in the future. Any client can choose such an id, and if it is the largest of
-- all, no further entry can be added.
--
-- KEYS[1] the stream   ARGV[1] our group, "" for a stream without one   ARGV[2] from which time in ms an id is absurd
-- ARGV[3] the new last id, unless an entry with a sensible id is newer
-- Returns 1 when the stream is repaired, 0 when that is not needed, -1 when an entry with such an id is not handled yet.
--
-- Entries with absurd ids are deleted once they are handled: the last id cannot be smaller than that of an entry.
-- Entries with sensible ids stay, pending ones too. They are older, so they have all been delivered, and the group can
-- go on after the new last id. Without that, new entries would have smaller ids than the last one that was delivered.
local function is_absurd(id)
  return not is_smaller(string.match(id, "^%d+"), ARGV[2])
end

if redis.call("EXISTS", KEYS[1]) == 0 then
  return 0
end
local last = fields(redis.call("XINFO", "STREAM", KEYS[1]))["last-generated-id"]
if not is_absurd(last) then
  return 0
end
-- An entry is handled when our group has acknowledged it, and while entries can be added, every other group too.
local absurd = redis.call("XRANGE", KEYS[1], ARGV[2], "+")
local is_exhausted = string.match(last, "^%d+") == "18446744073709551615"
for _, flat in ipairs(#absurd > 0 and redis.call("XINFO", "GROUPS", KEYS[1]) or {}) do
  local group = fields(flat)
  local name, delivered = group["name"], group["last-delivered-id"]
  if (name == ARGV[1] or not is_exhausted)
    and (delivered ~= last and delivered ~= absurd[#absurd][1]
      or #redis.call("XPENDING", KEYS[1], name, ARGV[2], "+", 1) > 0) then
    return -1
  end
end
for _, entry in ipairs(absurd) do
  redis.call("XDEL", KEYS[1], entry[1])
end
local newest = redis.call("XREVRANGE", KEYS[1], "+", "-", "COUNT", 1)[1]
redis.call("XSETID", KEYS[1], newest and newest[1] or ARGV[3])
for _, flat in ipairs(redis.call("XINFO", "GROUPS", KEYS[1])) do
  local group = fields(flat)
  if is_absurd(group["last-delivered-id"]) then
    redis.call("XGROUP", "SETID", KEYS[1], group["name"], newest and newest[1] or ARGV[3])
  end
end
if ARGV[1] == "" then -- a stream that no group reads: its entries are kept under new ids
  for _, entry in ipairs(absurd) do
    redis.call("XADD", KEYS[1], "*", unpack(entry[2]))
  end
end
return 1
