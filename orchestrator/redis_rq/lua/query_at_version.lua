-- Run read commands while a record is at a known version.
--
-- KEYS[1] the record   ARGV[1] the version that was loaded, "" when there was no record
-- ARGV[2..] the commands, each: the number of its args, then the args
-- Returns the replies in order, nil for a command that failed; or nil when the record is at another version.
local function query(...)
  local reply = redis.pcall(...)
  if type(reply) == "table" and reply.err then
    return false
  end
  return reply
end

if (query("HGET", KEYS[1], "version") or "") ~= ARGV[1] then
  return false
end
local replies, at = {}, 2
while at <= #ARGV do
  local args = tonumber(ARGV[at])
  replies[#replies + 1] = query(unpack(ARGV, at + 1, at + args))
  at = at + args + 1
end
return replies
