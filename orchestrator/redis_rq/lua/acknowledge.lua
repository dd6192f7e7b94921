-- Acknowledge an event without a commit and run the commands that answer it (reply, dead letter): both or neither.
--
-- KEYS[1] the stream   ARGV[1] the group   ARGV[2] the entry id
-- ARGV[3..] the commands, each: the number of its args, then the args
-- Returns 1, or 0 when the event was no longer pending: another coordinator has answered it, and nothing is run.
if redis.call("XACK", KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
run_commands(3)
return 1
