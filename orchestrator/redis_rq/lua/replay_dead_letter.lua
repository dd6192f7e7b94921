-- Publish an event again and delete its dead letter: both or neither.
--
-- KEYS[1] the dead letters   KEYS[2] the stream of the event
-- ARGV[1] the entry id of the letter   ARGV[2..] the fields of the event
-- Returns the entry id of the event, or nil when the letter no longer exists.
if #redis.call("XRANGE", KEYS[1], ARGV[1], ARGV[1]) == 0 then
  return false
end
local entry = redis.call("XADD", KEYS[2], "*", unpack(ARGV, 2))
redis.call("XDEL", KEYS[1], ARGV[1])
return entry
