-- Shared by scripts. Run the commands that the arguments hold from a place on: how many words, then the words.
local function run_commands(at)
  while at <= #ARGV do
    local words = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + words))
    at = at + words + 1
  end
end
