-- Shared by scripts. Places under concurrency keys go to those in line: first come, first served. A member is
-- <limit>|<stream>|<execution>|<step>|<token>; whatever else stands in line is nobody's, and goes.
local function hand_on(held, line)
  local next_one = redis.call("ZRANGE", line, 0, 0)[1]
  while next_one do
    local limit, stream, waiter, step, token = string.match(next_one, "^(%d+)|(.-)|(.-)|(.-)|(.-)$")
    if limit and redis.call("ZCARD", held) >= tonumber(limit) then
      return
    end
    redis.call("ZREM", line, next_one)
    if limit then
      local time = redis.call("TIME")
      redis.call("ZADD", held, time[1] * 1000 + math.floor(time[2] / 1000), next_one)
      redis.call("XADD", stream, "*", "type", "slot", "execution", waiter, "step", step, "token", token)
    end
    next_one = redis.call("ZRANGE", line, 0, 0)[1]
  end
end
