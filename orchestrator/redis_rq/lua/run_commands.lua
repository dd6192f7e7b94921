-- Shared by scripts: the commands in ARGV from a position on. Each command is its number of args, then the args.
-- Calls `call` for `count` of them, or for all when there is no count; returns the position behind them.
local function run_commands(call, at, count)
  while at <= #ARGV and count ~= 0 do
    local args = tonumber(ARGV[at])
    call(unpack(ARGV, at + 1, at + args))
    at, count = at + args + 1, count and count - 1
  end
  return at
end
