-- Keep what a run said, as long as its execution is kept: for one that is gone nothing is written.
--
-- KEYS[1] the lines
-- ARGV[1] the record, which is no key of this script: whoever names a key must be allowed to write to it
-- ARGV[2] how many entries to keep, about   ARGV[3..5] step, run_id, attempt   ARGV[6..] at, text; at, text; ...
-- Returns how many were written.
if redis.call("PTTL", ARGV[1]) == -2 then -- for which workers of earlier releases have the right already
  return 0
end
for i = 6, #ARGV, 2 do
  redis.call("XADD", KEYS[1], "MAXLEN", "~", ARGV[2], "*",
    "step", ARGV[3], "run_id", ARGV[4], "attempt", ARGV[5], "at", ARGV[i], "text", ARGV[i + 1])
end
return (#ARGV - 5) / 2
