-- Keep a signal for an execution that does not exist yet, and acknowledge it: both or neither.
--
-- KEYS[1] the pointer of the execution   KEYS[2] the list of its early signals   KEYS[3] the stream of the signal
-- ARGV[1] the signal (JSON)   ARGV[2] the group   ARGV[3] the entry id   ARGV[4] how long the signal is kept, in s
-- ARGV[5] the maximum number of signals that are kept   ARGV[6] the maximum number of bytes of all of them
-- ARGV[7..] commands that reply to the sender, each: the number of its args, then the args
-- Returns 1 when the signal is kept, or was already acknowledged by another coordinator; 0 when the execution
--         exists by now; -1 when there is no room for it.
--
-- If the signal cannot be kept or acknowledged, the error ends the script, the event stays pending, and the signal is not
-- in the list. If it cannot expire, that is all that is wrong.
if redis.call("EXISTS", KEYS[1]) == 1 then
  return 0
end
local kept, size = redis.call("LRANGE", KEYS[2], 0, -1), #ARGV[1]
for _, signal in ipairs(kept) do
  size = size + #signal
end
if #kept >= tonumber(ARGV[5]) or size > tonumber(ARGV[6]) then
  return -1
end
if is_event_pending(KEYS[3], ARGV[2], ARGV[3]) then
  redis.call("RPUSH", KEYS[2], ARGV[1])
  local is_acknowledged, problem = pcall(must, "XACK", KEYS[3], ARGV[2], ARGV[3])
  if not is_acknowledged then
    redis.pcall("LTRIM", KEYS[2], 0, -2)
    error(problem, 0)
  end
  run("EXPIRE", KEYS[2], ARGV[4])
  run_commands(run, 7)
end
return 1
