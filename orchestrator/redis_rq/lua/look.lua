-- Run reading commands, all of them upon one version of a record.
--
-- KEYS[1] the record   ARGV[1] the version it was read at, "" when there was none
-- ARGV[2..] the commands: how many words, then the words
-- Returns their answers in order, nil for one that failed; or nil when the record is at another version.
local function ask(...)
  local answer = redis.pcall(...)
  if type(answer) == "table" and answer.err then
    return false
  end
  return answer
end

if (ask("HGET", KEYS[1], "version") or "") ~= ARGV[1] then
  return false
end
local answers, at = {}, 2
while at <= #ARGV do
  local words = tonumber(ARGV[at])
  answers[#answers + 1] = ask(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return answers
