-- Keep what a run said, as long as its execution is kept: for one that is gone nothing is written, and for one
-- that has ended the lines go when its record does.
--
-- KEYS[1] the lines   KEYS[2] the record
-- ARGV[1] how many entries to keep, about   ARGV[2..4] step, run_id, attempt   ARGV[5..] at, text; at, text; ...
-- Returns how many were written.
local term = redis.call("PTTL", KEYS[2])
if term == -2 then
  return 0
end
for i = 5, #ARGV, 2 do
  redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[1], "*",
    "step", ARGV[2], "run_id", ARGV[3], "attempt", ARGV[4], "at", ARGV[i], "text", ARGV[i + 1])
end
if term >= 0 then
  redis.call("PEXPIRE", KEYS[1], math.max(term, 1))
end
return (#ARGV - 4) / 2
