-- Keep a signal for an execution that does not exist yet, and acknowledge it: both or neither.
--
-- KEYS[1] the pointer of the execution   KEYS[2] the list of its early signals   KEYS[3] the stream of the signal
-- ARGV[1] the signal (JSON)   ARGV[2] the group   ARGV[3] the entry id   ARGV[4] how long the signal is kept, in s
-- ARGV[5..] commands that reply to the sender, each: the number of its args, then the args
-- Returns 1 when the signal is kept, or was already acknowledged by another coordinator; 0 when the execution
--         exists by now.
--
-- If the signal cannot be kept, the error ends the script, and the event stays pending.
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
if is_event_pending(KEYS[3], ARGV[2], ARGV[3]) then
  redis.call("RPUSH", KEYS[2], ARGV[1])
  redis.call("EXPIRE", KEYS[2], ARGV[4])
  redis.call("XACK", KEYS[3], ARGV[2], ARGV[3])
  run_commands(run, 5)
end
return 1
