-- Shared by scripts: grant the free slots of a concurrency key to its waiters, first come, first served. Each
-- waiter that gets a slot is sent a "slot" event.
--
-- A member is <limit>|<stream>|<execution>|<step>|<token>. A waiter of any other form is removed.
local function grant_slots(holders, waiters)
  local first = redis.call("ZRANGE", waiters, 0, 0)[1]
  while first do
    local limit, stream, execution, step, token = string.match(first, "^(%d+)|(.-)|(.-)|(.-)|(.-)$")
    if limit and redis.call("ZCARD", holders) >= tonumber(limit) then
      return
    end
    redis.call("ZREM", waiters, first)
    if limit then
      local time = redis.call("TIME")
      redis.call("ZADD", holders, time[1] * 1000 + math.floor(time[2] / 1000), first)
      redis.call("XADD", stream, "*", "type", "slot", "execution", execution, "step", step, "token", token)
    end
    first = redis.call("ZRANGE", waiters, 0, 0)[1]
  end
end
