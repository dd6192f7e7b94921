-- Acknowledge an event that no commit answers, and say what became of it: both or neither. Whoever holds an
-- event that somebody else has answered meanwhile has nothing to say.
--
-- KEYS[1] the stream   ARGV[1] the group   ARGV[2] the entry id
-- ARGV[3..] what is said, as commands: how many words, then the words
-- Returns 1, or 0 when the event was no longer pending.
if redis.call("XACK", KEYS[1], ARGV[1], ARGV[2]) == 0 then
  return 0
end
run_commands(3)
return 1
