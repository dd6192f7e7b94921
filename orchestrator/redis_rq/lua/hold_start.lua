-- Move a start to the stream of a full queue: it is acknowledged where it was read, and waits there.
--
-- KEYS[1] the stream that it was read from   KEYS[2] the stream of held starts of the queue
-- KEYS[3] the list of held starts: the entry id under which each was sent, and its queue
-- ARGV[1] the group   ARGV[2] its entry id   ARGV[3] the entry id under which it was sent   ARGV[4] the queue
-- ARGV[5] 1 to delete it where it was read: it was held for another queue before   ARGV[6..] its fields
-- Returns 1 when it is held, 0 when it was no longer pending; -1 and the text of an error when it cannot be held.
--
-- After an error the start is still pending where it was, and what was written is removed. If even that fails, the start
-- exists twice. Both have the entry id under which it was sent, and only one of the two creates an execution.
local entry
local function move()
  must("HSET", KEYS[3], ARGV[3], ARGV[4])
  entry = must("XADD", KEYS[2], "*", "start_event", ARGV[3], unpack(ARGV, 6))
  must("XACK", KEYS[1], ARGV[1], ARGV[2])
end

local function hold()
  if not is_event_pending(KEYS[1], ARGV[1], ARGV[2]) then
    return 0
  end
  local created = redis.pcall("XGROUP", "CREATE", KEYS[2], ARGV[1], "0", "MKSTREAM")
  if created.err and not string.find(created.err, "BUSYGROUP", 1, true) then
    error({ err = describe(created.err, "XGROUP", KEYS[2]) }, 0)
  end
  local former = must("HGET", KEYS[3], ARGV[3])
  local is_done, problem = pcall(move)
  if not is_done then
    if entry then
      redis.pcall("XDEL", KEYS[2], entry)
    end
    if former then
      redis.pcall("HSET", KEYS[3], ARGV[3], former)
    else
      redis.pcall("HDEL", KEYS[3], ARGV[3])
    end
    error(problem, 0)
  end
  if ARGV[5] == "1" then
    run("XDEL", KEYS[1], ARGV[2])
  end
  return 1
end

local is_done, result = pcall(hold)
return is_done and { result, "" } or { -1, error_text(result) }
