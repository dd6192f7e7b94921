-- Acknowledge an event without a commit and run the commands that answer it (reply, dead letter).
--
-- KEYS[1] the stream   ARGV[1] the group   ARGV[2] the entry id   ARGV[3] the number of fragile commands
-- ARGV[4..] the commands, the fragile ones first, each: the number of its args, then the args
-- Returns 0 when the event was no longer pending: another coordinator has answered it, and nothing is run. Else 1, then
--         the errors of the other commands.
--
-- An error of a fragile command ends the script, and the event stays pending. After that the event is acknowledged,
-- whatever error the other commands have: an event that cannot be answered must not come again for ever.
if not is_event_pending(KEYS[1], ARGV[1], ARGV[2]) then
  return { 0 }
end
local rest = run_commands(redis.call, 4, tonumber(ARGV[3]))
redis.call("XACK", KEYS[1], ARGV[1], ARGV[2])
run_commands(run, rest)
return { 1, unpack(kept_errors) }
