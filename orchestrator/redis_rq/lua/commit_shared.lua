-- Part of commit.lua: keys that executions share: shared values, concurrency slots, idempotency roots, groups.

local function release_root(key, owner)
  if run("GET", key) == owner then
    run("DEL", key)
  end
end

-- An increment of something that is not a number, or to something infinite, is not written. A value that cannot be
-- written, because its key has a wrong type, is counted: an error would leave half a commit.
local function write_shared_value(kind, key, field, value)
  if kind == "add" then
    local sum = (tonumber(redis.pcall("HGET", key, field) or "0") or 0 / 0) + tonumber(value)
    local is_number, is_whole = math.abs(sum) < math.huge, sum == math.floor(sum) and math.abs(sum) < 1e15
    value = is_number and string.format(is_whole and "%.0f" or "%.17g", sum)
  end
  if not value or type(redis.pcall("HSET", key, field, value)) == "table" then
    run("HINCRBY", KEYS[3], "not_shared", 1)
  end
end

local function change_slot(is_acquire, holders, waiters, member)
  if is_acquire then
    local last = run("ZRANGE", waiters, -1, -1, "WITHSCORES")[2]
    run("ZADD", waiters, (tonumber(last) or 0) + 1, member)
  else
    run("ZREM", holders, member)
    run("ZREM", waiters, member)
  end
  -- The execution that waits is repaired too: no other commit may ever look at this key.
  local unserved = grant_slots(holders, waiters, run)
  if unserved then
    redis.pcall("SADD", KEYS[5], unserved)
  end
  note_slots(KEYS[8], holders, waiters)
end

local FINAL = { complete = true, halted = true, failed = true, cancelled = true }
local function has_ended(execution)
  local id = run("GET", execution)
  return type(id) ~= "string" or FINAL[run("HGET", KEYS[4] .. id, "status")]
end

local function read_end()
  if next_arg() == "1" then
    return {
      spec = next_arg(), spec_ttl = next_arg(), retention = next_arg(), values = next_arg(), root = next_arg(),
      groups = next_arg(), group = next_arg(), group_values = next_arg(),
    }
  end
end

local function finish(ended)
  -- Global values expire after their root execution, or after the last child that outlives it.
  if ended.values ~= "" and (ended.root == "" or has_ended(ended.root)) then
    run("EXPIRE", ended.values, ended.retention)
  end
  local open = ended.group ~= "" and run("HINCRBY", ended.groups, ended.group, -1)
  if type(open) == "number" and open <= 0 then
    run("HDEL", ended.groups, ended.group)
    run("EXPIRE", ended.group_values, ended.retention)
  end
  count_open(ended.spec, -1, ended.spec_ttl)
end
