-- Part of commit.lua: writes to keys that many commits share. They are collected, and each key is written once after
-- the last commit.

local BATCHED = { ZREM = {}, HINCRBY = {}, ZADD = {}, XACK = {} }
local ORDER = { "ZREM", "HINCRBY", "ZADD", "XACK" } -- members are removed from a key before others are added
local MAX_ARGS = 2000                               -- Lua's stack limits the number of args of one command

local function batched(kind, key)
  local found = BATCHED[kind][key]
  if not found then
    found = {}
    BATCHED[kind][key] = found
    BATCHED[kind][#BATCHED[kind] + 1] = key
  end
  return found
end

-- Collect the command in ARGV[first..last].
local function add_to_batch(first, last)
  local kind, key = ARGV[first], ARGV[first + 1]
  local found = batched(kind, key)
  if kind == "HINCRBY" then
    local field = ARGV[first + 2]
    if not found[field] then
      found[#found + 1] = field
    end
    found[field] = (found[field] or 0) + tonumber(ARGV[first + 3])
  else
    for n = first + 2, last do
      found[#found + 1] = ARGV[n]
    end
  end
end

-- By queue name: the sequence of its last job, and the ids of the jobs that are still to be pushed.
local queues = {}

-- By spec: the change of its number of open executions, and the TTL it gets when the last one has ended.
local open_changes = {}
local function count_open(spec, change, ttl)
  local found = open_changes[spec]
  if not found then
    found = { change = 0 }
    open_changes[spec] = found
    open_changes[#open_changes + 1] = spec
  end
  found.change, found.ttl = found.change + change, ttl or found.ttl
end

-- Run one command, or several when it has too many args.
local function run_in_parts(call, args, ...)
  for first = 1, #args, MAX_ARGS do
    local command = { ... }
    for n = first, math.min(first + MAX_ARGS - 1, #args) do
      command[#command + 1] = args[n]
    end
    call(unpack(command))
  end
end

local function write_batch()
  for _, name in ipairs(queues) do
    local queue = queues[name]
    if #queue.ids > 0 then
      run("HINCRBY", KEYS[2], name, #queue.ids)
      run_in_parts(run, queue.ids, "RPUSH", "rq:queue:" .. name)
    end
  end
  for _, kind in ipairs(ORDER) do
    for _, key in ipairs(BATCHED[kind]) do
      local args = BATCHED[kind][key]
      if kind == "XACK" then
        run_in_parts(run, args, kind, key, group)
      elseif kind == "HINCRBY" then
        for _, field in ipairs(args) do
          run(kind, key, field, args[field])
        end
      else
        run_in_parts(run, args, kind, key)
      end
    end
  end
  -- A spec outlives its last execution by the retention, unless it is registered.
  for _, spec in ipairs(open_changes) do
    local open, ttl = run("HINCRBY", spec, "executions", open_changes[spec].change), open_changes[spec].ttl
    if ttl and type(open) == "number" and open <= 0
      and tonumber(run("HGET", spec, "registered") or 0) <= 0 then
      run("EXPIRE", spec, ttl)
    end
  end
end
