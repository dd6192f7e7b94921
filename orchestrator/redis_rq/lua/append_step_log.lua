-- Append lines to the step log of an execution, unless the execution is deleted.
--
-- KEYS[1] the step log
-- ARGV[1] the record. It is not in KEYS: a user must have the right to write to every key of a script, and workers
--         may not write records.
-- ARGV[2] about how many entries to keep   ARGV[3..5] step, run_id, attempt   ARGV[6..] at, text; at, text; ...
-- Returns the number of lines written.
if redis.call("PTTL", ARGV[1]) == -2 then -- PTTL, because that is the command workers may run on a record
  return 0
end
for i = 6, #ARGV, 2 do
  redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[2], "*",
    "step", ARGV[3], "run_id", ARGV[4], "attempt", ARGV[5], "at", ARGV[i], "text", ARGV[i + 1])
end
return (#ARGV - 5) / 2
