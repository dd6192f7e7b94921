-- Write one decision whole, or nothing of it.
--
-- KEYS[1] the record   KEYS[2] the leases   KEYS[3] the sequences of the queues
-- KEYS[4] the prefix of the keys that hold what is dispatched and not started, one for each queue
-- KEYS[5] the counters
-- ARGV    n, then n times: stream, group, entry id, each of which must still be pending
--         1 for a new execution and then its key, its spec's key and document, the key of the signals that
--           were kept for it and how many the decision knows; 1 for a child and then its parent's record, the
--           field of the step that waits for it, under which token and for whom, else 0; 1 for an idempotency
--           root and then its key, the window in s and the execution, else 0; 1 for one that takes the place of
--           another and then that one's id, record and version, else 0; the key of global values that may be
--           there of another that had its id, or nothing; for an execution that is not new, just 0
--         the version the decision was made upon
--         n, then n queues, each: its name, how many jobs, and for each job token, lease member, data,
--           timeout, description, time
--         n, then n tokens of dispatches that nobody waits for any more
--         n, then n idempotency roots that are free again: key, execution that had it
--         n, then n values that executions share: "set" or "add", key, field, value
--         n, then n places under concurrency keys: 1 wanted or 0 given back, who is in, who waits, member
--         1 for an execution that ends and then its spec's key, the term of that and the retention in s, the
--           key of its global values, of its root execution if that is another, of the groups, its group, that
--           one's values; else 0
--         the rest, as commands: how many words, then the words
-- Returns 1 when written, 0 when the record is at another version, -1 when the execution exists already,
--         -2 when an event is no longer pending, -3 when another document has the same workflow_id,
--         -4 when a signal came in between, -5 when no parent waits for this child, -6 when an execution was
--         started under the same idempotency root before.
local at = 1
local function word()
  at = at + 1
  return ARGV[at - 1]
end

-- Checks first, writes last: a script cannot be rolled back.
for _ = 1, tonumber(word()) do
  local stream, group, id = word(), word(), word()
  local pending = redis.pcall("XPENDING", stream, group, id, id, 1)
  if pending.err or #pending == 0 then
    return -2
  end
end
local creates, execution, new_spec, document, signals = word() == "1", nil, nil, nil, nil
local root, window, first
local replaced, replaced_record, replaced_version
local own_values
if creates then
  execution, new_spec, document, signals = word(), word(), word(), word()
  local known_signals = tonumber(word())
  if word() == "1" then
    local parent, step, token, child = word(), word(), word(), word()
    local is_known, waiting = pcall(cjson.decode, redis.call("HGET", parent, step) or "")
    if not (is_known and type(waiting) == "table" and waiting.token == token and waiting.child == child) then
      return -5
    end
  end
  if word() == "1" then
    root, window, first = word(), word(), word()
    if redis.call("EXISTS", root) == 1 then
      return -6
    end
  end
  if word() == "1" then
    replaced, replaced_record, replaced_version = word(), word(), word()
  end
  own_values = word()
  local there = redis.call("GET", execution)
  if there and (there ~= replaced or redis.call("HGET", replaced_record, "version") ~= replaced_version) then
    return -1
  end
  local known = redis.call("HGET", new_spec, "document")
  if known and known ~= document then
    return -3
  end
  if redis.call("LLEN", signals) ~= known_signals then
    return -4
  end
end
-- What is not there has the version false: demanded of a new execution, unless it replaces one of its own id.
local version = word()
if creates then
  version = replaced_record == KEYS[1] and replaced_version
end
if redis.call("HGET", KEYS[1], "version") ~= version then
  return 0
end

for _ = 1, tonumber(word()) do
  local queue, jobs = word(), tonumber(word())
  local sequence = redis.call("HINCRBY", KEYS[3], queue, jobs) - jobs
  if sequence == 0 then
    redis.call("SADD", "rq:queues", "rq:queue:" .. queue)
  end
  local tokens, leases, dispatched = {}, {}, {}
  for n = 1, jobs do
    local token, member, data, timeout, description, now = word(), word(), word(), word(), word(), word()
    redis.call("HSET", "rq:job:" .. token, "data", data, "timeout", timeout, "description", description,
      "created_at", now, "enqueued_at", now, "origin", queue, "status", "queued",
      "result_ttl", "0", "failure_ttl", "3600", "sequence", sequence + n, "lease", member)
    tokens[n] = token
    leases[2 * n - 1], leases[2 * n] = "+inf", member
    dispatched[2 * n - 1], dispatched[2 * n] = sequence + n, member
  end
  -- A lease that nobody has taken is never due; sweep.lua gives it a term when its job leaves the queue.
  redis.call("ZADD", KEYS[2], unpack(leases))
  redis.call("ZADD", KEYS[4] .. queue, unpack(dispatched))
  redis.call("RPUSH", "rq:queue:" .. queue, unpack(tokens))
end

if creates then
  redis.call("HSET", new_spec, "document", document)
  redis.call("HINCRBY", new_spec, "executions", 1)
  redis.call("PERSIST", new_spec)
  redis.call("DEL", signals)
  -- Whoever had this id before may have left values; they are not ours.
  if own_values ~= "" then
    redis.call("DEL", own_values)
  end
  if root then
    redis.call("SET", root, first, "EX", window)
  end
end

-- RQ passes over a job without a hash, so this takes it from its queue whatever the queue's length.
-- A job that runs keeps its hash for RQ to clean up; its lease is gone, so its result will not count, and its
-- worker is told to stop it. Should it not hear that, the lease tells it with the next beat.
-- Not told is a worker that is idle and takes it for its job all the same: its work-horse left with exit code 0
-- and without a word. RQ would look for the group of that work-horse, and find and kill the worker's own.
local function is_left(worker, token)
  local known = redis.pcall("HMGET", "rq:worker:" .. worker, "state", "current_job")
  return known[1] == "idle" and known[2] == token
end
for _ = 1, tonumber(word()) do
  local token = word()
  local job = redis.call("HMGET", "rq:job:" .. token, "status", "worker_name")
  if job[1] == "queued" then
    redis.call("DEL", "rq:job:" .. token)
  elseif job[2] and not is_left(job[2], token) then
    redis.call("PUBLISH", "rq:pubsub:" .. job[2], cjson.encode({ command = "stop-job", job_id = token }))
  end
end

for _ = 1, tonumber(word()) do
  local key, owner = word(), word()
  if redis.call("GET", key) == owner then
    redis.call("DEL", key)
  end
end

-- Values that executions share. Nothing is added to what is no number, and no sum is beyond all numbers; what
-- cannot be written, because something else stands in its place, is counted: half a commit would be worse.
for _ = 1, tonumber(word()) do
  local kind, key, field, value = word(), word(), word(), word()
  if kind == "add" then
    local sum = (tonumber(redis.pcall("HGET", key, field) or "0") or 0 / 0) + tonumber(value)
    local is_number, is_whole = math.abs(sum) < math.huge, sum == math.floor(sum) and math.abs(sum) < 1e15
    value = is_number and string.format(is_whole and "%.0f" or "%.17g", sum)
  end
  if not value or type(redis.pcall("HSET", key, field, value)) == "table" then
    redis.call("HINCRBY", KEYS[5], "not_shared", 1)
  end
end

for _ = 1, tonumber(word()) do
  local is_wanted, held, line, member = word() == "1", word(), word(), word()
  if is_wanted then
    local last = redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2]
    redis.call("ZADD", line, (tonumber(last) or 0) + 1, member)
  else
    redis.call("ZREM", held, member)
    redis.call("ZREM", line, member)
  end
  hand_on(held, line)
end

local ends = word() == "1"
local spec, term, retention, values, root_execution, groups, group, group_values
if ends then
  spec, term, retention, values, root_execution = word(), word(), word(), word(), word()
  groups, group, group_values = word(), word(), word()
end

run_commands(at)

-- Last of all, for an execution may end where it begins.
if ends then
  -- Global values go with their root, or with the last child that outlived it: its key has a term by then.
  if root_execution == "" or redis.call("TTL", root_execution) ~= -1 then
    redis.call("EXPIRE", values, retention)
  end
  if group ~= "" and redis.call("HINCRBY", groups, group, -1) <= 0 then
    redis.call("HDEL", groups, group)
    redis.call("EXPIRE", group_values, retention)
  end
  -- The spec outlives its last execution by the retention, unless it is registered.
  if redis.call("HINCRBY", spec, "executions", -1) <= 0
    and tonumber(redis.call("HGET", spec, "registered") or 0) <= 0 then
    redis.call("EXPIRE", spec, term)
  end
end
return 1
