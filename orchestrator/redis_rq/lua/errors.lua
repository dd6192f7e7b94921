-- Shared by scripts that write: commands whose errors are expected. A script cannot be rolled back, so it must know for
-- each command what its error means.
--
-- must() is for the commands before the point from which on a change counts as written: reads, and writes that do no
-- harm if the change is then given up. An error ends the change.
local function describe(error, command, key)
  return error .. " (" .. command .. " " .. tostring(key or "") .. ")"
end

local function must(...)
  local reply = redis.pcall(...)
  if type(reply) == "table" and reply.err then
    error({ err = describe(reply.err, ...) }, 0)
  end
  return reply
end

-- run() is for the commands after that point. An error is kept, and the script goes on. Members that could not be removed
-- are kept too, after their key: nothing else names them any more.
local kept_errors, kept_removals = {}, {}
local function run(...)
  local reply = redis.pcall(...)
  if type(reply) == "table" and reply.err then
    kept_errors[#kept_errors + 1] = describe(reply.err, ...)
    if select(1, ...) == "ZREM" then
      kept_removals[#kept_removals + 1] = { select(2, ...) }
    end
  end
  return reply
end

-- The pending entries of a group between two ids. A missing stream or group has none.
local function query_pending(...)
  local found = redis.pcall("XPENDING", ...)
  if not found.err then
    return found
  end
  if not string.find(found.err, "NOGROUP", 1, true) then
    error({ err = found.err }, 0)
  end
  return {}
end

local function is_event_pending(stream, group, id)
  return #query_pending(stream, group, id, id, 1) > 0
end

local function error_text(error)
  return type(error) == "table" and error.err or tostring(error)
end
