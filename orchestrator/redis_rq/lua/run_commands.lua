-- Shared by scripts: run the commands in ARGV from a position on. Each command is its number of args, then the args.
local function run_commands(at)
  while at <= #ARGV do
    local args = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + args))
    at = at + args + 1
  end
end
