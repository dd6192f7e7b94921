-- Keep a signal for an execution that does not exist yet, unless it has come into being meanwhile.
--
-- KEYS[1] the execution   KEYS[2] the list of its signals   KEYS[3] the stream the signal came by
-- ARGV[1] the signal (JSON)   ARGV[2] the group   ARGV[3] the entry id   ARGV[4] how long it is kept, in s
-- ARGV[5..] what is said to its sender, as commands: how many words, then the words
-- Returns 1 when it is kept or was answered by somebody else, 0 when the execution exists now.
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
if redis.call("XACK", KEYS[3], ARGV[2], ARGV[3]) == 1 then
  redis.call("RPUSH", KEYS[2], ARGV[1])
  redis.call("EXPIRE", KEYS[2], ARGV[4])
  run_commands(5)
end
return 1
