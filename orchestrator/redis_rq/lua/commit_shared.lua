-- Part of commit.lua: keys that executions share: shared values, concurrency slots, idempotency roots, groups.

local function release_root(key, owner)
  if redis.call("GET", key) == owner then
    redis.call("DEL", key)
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
    redis.call("HINCRBY", KEYS[3], "not_shared", 1)
  end
end

local function change_slot(is_acquire, holders, waiters, member)
  if is_acquire then
    local last = redis.call("ZRANGE", waiters, -1, -1, "WITHSCORES")[2]
    redis.call("ZADD", waiters, (tonumber(last) or 0) + 1, member)
  else
    redis.call("ZREM", holders, member)
    redis.call("ZREM", waiters, member)
  end
  grant_slots(holders, waiters)
end

local FINAL = { complete = true, halted = true, failed = true, cancelled = true }
local function has_ended(execution)
  local id = redis.call("GET", execution)
  return not id or FINAL[redis.call("HGET", KEYS[4] .. id, "status")]
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
    redis.call("EXPIRE", ended.values, ended.retention)
  end
  if ended.group ~= "" and redis.call("HINCRBY", ended.groups, ended.group, -1) <= 0 then
    redis.call("HDEL", ended.groups, ended.group)
    redis.call("EXPIRE", ended.group_values, ended.retention)
  end
  count_open(ended.spec, -1, ended.spec_ttl)
end
