-- Shared by scripts: concurrency slots.
--
-- grant_slots() grants the free slots of a concurrency key to its waiters, first come, first served. Each
-- waiter that gets a slot is sent a "slot" event. `call` runs a command: redis.call, or a function that keeps errors.
--
-- A member is <limit>|<stream>|<execution>|<step>|<token>. A waiter of any other form is removed. The event comes first:
-- a holder that is never told of its slot would keep it for ever. Returns the execution that could not be granted its slot
-- because of an error, nil for none.
local function grant_slots(holders, waiters, call)
  local first = call("ZRANGE", waiters, 0, 0)[1]
  while first do
    local limit, stream, execution, step, token = string.match(first, "^(%d+)|(.-)|(.-)|(.-)|(.-)$")
    if limit then
      local held = call("ZCARD", holders)
      if type(held) ~= "number" or held >= tonumber(limit) then
        return
      end
      local event = call("XADD", stream, "*", "type", "slot", "execution", execution, "step", step, "token", token)
      if type(event) == "table" and event.err then
        return execution
      end
      local time = call("TIME")
      if type(call("ZADD", holders, time[1] * 1000 + math.floor(time[2] / 1000), first)) ~= "number" then
        return execution
      end
    end
    if call("ZREM", waiters, first) ~= 1 then
      return execution
    end
    first = call("ZRANGE", waiters, 0, 0)[1]
  end
end

-- Keep the list of the concurrency keys in use up to date, for the metrics. The score of a key is its number of waiters
-- times 2^26, plus its number of holders. It is computed anew each time, so a wrong one corrects itself. Errors are ignored:
-- no execution depends on this list.
local function note_slots(keys_in_use, holders, waiters)
  local held, waiting = redis.pcall("ZCARD", holders), redis.pcall("ZCARD", waiters)
  if type(held) ~= "number" or type(waiting) ~= "number" then
    return
  end
  if held + waiting > 0 then
    redis.pcall("ZADD", keys_in_use, string.format("%.0f", waiting * 2 ^ 26 + held), holders)
  else
    redis.pcall("ZREM", keys_in_use, holders)
  end
end
