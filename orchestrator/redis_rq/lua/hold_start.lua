-- Move a start to the stream of a full queue: it is acknowledged where it was read, and waits there.
--
-- KEYS[1] the stream that it was read from   KEYS[2] the stream of held starts of the queue
-- KEYS[3] the list of held starts: the entry id under which each was sent, and its queue
-- KEYS[4] the sequences of the queues
-- ARGV[1] the group   ARGV[2] its entry id   ARGV[3] the entry id under which it was sent   ARGV[4] the queue
-- ARGV[5] 1 to delete it where it was read: it was held for another queue before   ARGV[6] the name of the RQ queue
-- ARGV[7..] its fields
-- Returns 1 when it is held, 0 when it was no longer pending, 2 when the queue is not full; -1 and the text of an error when
--         it cannot be held.
--
-- A queue without a sequence has no jobs: Redis was rolled back after the coordinator had found the queue full. The sweep
-- does not know such a queue, and would not find a start that is held for it.
--
-- After an error the start is still pending where it was, and what was written is removed. If even that fails, the start
-- exists twice. Both have the entry id under which it was sent, and only one of the two creates an execution.
local entry
local function move()
  must("HSET", KEYS[3], ARGV[3], ARGV[4])
  entry = must("XADD", KEYS[2], "*", "start_event", ARGV[3], unpack(ARGV, 7))
  must("XACK", KEYS[1], ARGV[1], ARGV[2])
end

local function hold()
  if not is_event_pending(KEYS[1], ARGV[1], ARGV[2]) then
    return 0
  end
  if must("HEXISTS", KEYS[4], ARGV[6]) == 0 then
    return 2
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
