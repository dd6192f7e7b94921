-- Write decisions, each of them whole or not at all. What several of them write to the same key is written once,
-- after the last of them.
--
-- KEYS[1] the leases   KEYS[2] the sequences of the queues   KEYS[3] the counters
-- KEYS[4] the prefix of the keys that hold records
-- ARGV    the group, and how many entries of a stream to look up at a time
--         n, then n specs of new executions: key, document
--         n, then n streams that brought entries which must still be pending: name, the first and the last of them
--         the decisions, each: how many words it has, then
--           n, then n times: stream and entry id, each of which must still be pending
--           the record, and the version the decision was made upon
--           1 for a new execution and then its key, its id, which of the specs it has, the key of the signals that
--             were kept for it and how many the decision knows; 1 for a child and then its parent's record, the
--             field of the step that waits for it, under which token and for whom, else 0; 1 for an idempotency
--             root and then its key and the window in s, else 0; 1 for one that takes the place of another and
--             then that one's id, record and version, else 0; the key of global values that may be there of
--             another that had its id, or nothing; for an execution that is not new, just 0
--           n, then n queues, each: its name, how many jobs, and for each job token, data, timeout, lease
--           n, then n tokens of dispatches that nobody waits for any more
--           n, then n idempotency roots that are free again: key, execution that had it
--           n, then n values that executions share: "set" or "add", key, field, value
--           n, then n places under concurrency keys: 1 wanted or 0 given back, who is in, who waits, member
--           1 for an execution that ends and then its spec's key, the term of that and the retention in s, the
--             key of its global values or nothing, of its root execution if that is another, of the groups, its
--             group, that one's values; else 0
--           commands: how many words, then the words; 0; then those that may wait for the other decisions, which
--             are ZREM, HINCRBY, ZADD and XACK
-- Returns for each decision 1 when written, 0 when the record is at another version, -1 when the execution exists
--         already, -2 when an event is no longer pending, -3 when another document has the same workflow_id,
--         -4 when a signal came in between, -5 when no parent waits for this child, -6 when an execution was
--         started under the same idempotency root before.
local at = 1
local function word()
  at = at + 1
  return ARGV[at - 1]
end
local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

local group, looked_up = word(), number()
local specs = {}
for n = 1, number() do
  specs[n] = { key = word(), document = word() }
end

-- Which entries are pending: asked once for each stream, and again only where others hold very many.
local pending = {}
for _ = 1, number() do
  local stream, first, last = word(), word(), word()
  local found = redis.pcall("XPENDING", stream, group, first, last, looked_up)
  local known = { is_whole = not found.err and #found < looked_up }
  for _, entry in ipairs(found) do
    known[entry[1]] = true
  end
  pending[stream] = known
end
local function is_pending(stream, id)
  local known = pending[stream]
  if known[id] == nil and not known.is_whole then
    local found = redis.pcall("XPENDING", stream, group, id, id, 1)
    known[id] = not found.err and #found > 0
  end
  return known[id]
end

-- ---- what is written once for all decisions

local GATHERED = { ZREM = {}, HINCRBY = {}, ZADD = {}, XACK = {} }
local ORDER = { "ZREM", "HINCRBY", "ZADD", "XACK" } -- what leaves a key before what comes to it
local MOST_WORDS = 2000                             -- Lua's stack bounds how many one command may have

local function gathered(kind, key)
  local found = GATHERED[kind][key]
  if not found then
    found = {}
    GATHERED[kind][key] = found
    GATHERED[kind][#GATHERED[kind] + 1] = key
  end
  return found
end

local function gather(first, last)
  local kind, key = ARGV[first], ARGV[first + 1]
  local found = gathered(kind, key)
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

-- The queues that jobs go to, each with the sequence of the last of them, and those that are yet to be put there.
local queues = {}

-- By how much the number of open executions of a spec changes, and the term that it gets with the last of them.
local opened = {}
local function count_open(spec, change, term)
  local found = opened[spec]
  if not found then
    found = { change = 0 }
    opened[spec] = found
    opened[#opened + 1] = spec
  end
  found.change, found.term = found.change + change, term or found.term
end

local failed
local function run(...)
  local answer = redis.pcall(...)
  if type(answer) == "table" and answer.err then
    failed = failed or answer
  end
  return answer
end

-- One command, or several when it has too many words.
local function in_parts(call, words, ...)
  for first = 1, #words, MOST_WORDS do
    local command = { ... }
    for n = first, math.min(first + MOST_WORDS - 1, #words) do
      command[#command + 1] = words[n]
    end
    call(unpack(command))
  end
end

local function write_gathered()
  for _, name in ipairs(queues) do
    local queue = queues[name]
    if #queue.tokens > 0 then
      run("HINCRBY", KEYS[2], name, #queue.tokens)
      in_parts(run, queue.tokens, "RPUSH", "rq:queue:" .. name)
    end
  end
  for _, kind in ipairs(ORDER) do
    for _, key in ipairs(GATHERED[kind]) do
      local words = GATHERED[kind][key]
      if kind == "XACK" then
        in_parts(run, words, kind, key, group)
      elseif kind == "HINCRBY" then
        for _, field in ipairs(words) do
          run(kind, key, field, words[field])
        end
      else
        in_parts(run, words, kind, key)
      end
    end
  end
  -- A spec outlives its last execution by the retention, unless it is registered.
  for _, spec in ipairs(opened) do
    local open, term = run("HINCRBY", spec, "executions", opened[spec].change), opened[spec].term
    if term and type(open) == "number" and open <= 0
      and tonumber(run("HGET", spec, "registered") or 0) <= 0 then
      run("EXPIRE", spec, term)
    end
  end
end

-- ---- a new execution

local function beginning()
  local one = { key = word(), id = word(), spec = specs[number()], signals = word(), known_signals = number() }
  if word() == "1" then
    one.parent = { record = word(), step = word(), token = word(), child = word() }
  end
  if word() == "1" then
    one.root, one.window = word(), word()
  end
  if word() == "1" then
    one.replaced = { id = word(), record = word(), version = word() }
  end
  one.values = word()
  return one
end

local function is_awaited(parent)
  local is_known, step = pcall(cjson.decode, redis.call("HGET", parent.record, parent.step) or "")
  return is_known and type(step) == "table" and step.token == parent.token and step.child == parent.child
end

local function has_other_document(spec)
  if not spec.is_known then
    local known = redis.call("HGET", spec.key, "document")
    if known and known ~= spec.document then
      return true
    end
    spec.is_known, spec.is_stored = true, known
  end
  return false
end

-- The last check is the first write: the name of an execution goes to one of those that want it.
local function takes_its_name(one)
  if redis.call("SETNX", one.key, one.id) == 1 then
    return true
  end
  local replaced = one.replaced
  if not replaced or redis.call("GET", one.key) ~= replaced.id
    or redis.call("HGET", replaced.record, "version") ~= replaced.version then
    return false
  end
  redis.call("SET", one.key, one.id)
  return true
end

-- Why an execution cannot begin; nothing if it can.
local function refusal(one, record)
  if one.parent and not is_awaited(one.parent) then
    return -5
  end
  if one.root and redis.call("EXISTS", one.root) == 1 then
    return -6
  end
  if has_other_document(one.spec) then
    return -3
  end
  if redis.call("LLEN", one.signals) ~= one.known_signals then
    return redis.call("EXISTS", one.key) == 1 and not one.replaced and -1 or -4
  end
  -- What is not there has the version false: demanded, unless it replaces one of its own id.
  local replaced = one.replaced
  local version = replaced ~= nil and replaced.record == record and replaced.version
  local found = redis.call("HGET", record, "version")
  if found ~= version then
    return found and -1 or 0
  end
  if not takes_its_name(one) then
    return -1
  end
end

local function begin(one)
  local spec = one.spec
  if not spec.is_kept then
    if not spec.is_stored then
      redis.call("HSET", spec.key, "document", spec.document)
    end
    redis.call("PERSIST", spec.key)
    spec.is_kept = true
  end
  count_open(spec.key, 1)
  if one.known_signals > 0 then
    redis.call("DEL", one.signals)
  end
  -- Whoever had this id before may have left values; they are not ours.
  if one.values ~= "" then
    redis.call("DEL", one.values)
  end
  if one.root then
    redis.call("SET", one.root, one.id, "EX", one.window)
  end
end

-- ---- parts of a decision

-- The first jobs for a queue are put there at once: if something else stands in its place, that is found before
-- the record says that they are out. Those of further decisions are gathered.
-- A queue that is new, or that an earlier release has counted from 1, gets the first range that nobody has.
local function last_sequence(name, jobs)
  local last = redis.call("HINCRBY", KEYS[2], name, jobs)
  if last < WAITING then
    local highest, known = WAITING - RANGE, redis.call("HGETALL", KEYS[2])
    for n = 2, #known, 2 do
      highest = math.max(highest, tonumber(known[n]) or 0)
    end
    last = (math.floor(highest / RANGE) + 1) * RANGE + jobs
    redis.call("HSET", KEYS[2], name, written(last))
    redis.call("SADD", "rq:queues", "rq:queue:" .. name)
  end
  return last
end
local function dispatch()
  for _ = 1, number() do
    local name, jobs = word(), number()
    local queue, tokens, leases = queues[name], {}, gathered("ZADD", KEYS[1])
    if queue then
      tokens = queue.tokens
    else
      queue = { sequence = last_sequence(name, jobs) - jobs, tokens = {} }
      queues[name] = queue
      queues[#queues + 1] = name
    end
    local sequence = queue.sequence
    for n = 1, jobs do
      local token, data, timeout, lease = unpack(ARGV, at, at + 3)
      at = at + 4
      redis.call("HSET", "rq:job:" .. token, "data", data, "timeout", timeout, "description", lease,
        "origin", name, "status", "queued")
      tokens[#tokens + 1] = token
      -- A lease that nobody has taken is never due; sweep.lua gives it a term when its job leaves the queue.
      leases[#leases + 1], leases[#leases + 2] = written(sequence + n), lease
    end
    queue.sequence = sequence + jobs
    if tokens ~= queue.tokens then
      in_parts(redis.call, tokens, "RPUSH", "rq:queue:" .. name)
    end
  end
end

-- RQ passes over a job without a hash, so this takes it from its queue whatever the queue's length.
-- A job that runs keeps its hash for its worker to clean up, and goes by itself should that be dead; its lease is
-- gone, so its result will not count, and its worker is told to stop it. Should it not hear that, the lease tells
-- it with the next beat.
-- Not told is a worker that is idle and takes it for its job all the same: its work-horse left with exit code 0
-- and without a word. RQ would look for the group of that work-horse, and find and kill the worker's own.
local function is_left(worker, token)
  local known = redis.pcall("HMGET", "rq:worker:" .. worker, "state", "current_job")
  return known[1] == "idle" and known[2] == token
end
local function revoke(token)
  local job = redis.call("HMGET", "rq:job:" .. token, "status", "worker_name")
  if job[1] == "queued" then
    redis.call("DEL", "rq:job:" .. token)
  elseif job[1] then
    if job[2] and not is_left(job[2], token) then
      redis.call("PUBLISH", "rq:pubsub:" .. job[2], cjson.encode({ command = "stop-job", job_id = token }))
    end
    redis.call("EXPIRE", "rq:job:" .. token, 86400)
  end
end

-- Nothing is added to what is no number, and no sum is beyond all numbers; what cannot be written, because
-- something else stands in its place, is counted: half a commit would be worse.
local function share(kind, key, field, value)
  if kind == "add" then
    local sum = (tonumber(redis.pcall("HGET", key, field) or "0") or 0 / 0) + tonumber(value)
    local is_number, is_whole = math.abs(sum) < math.huge, sum == math.floor(sum) and math.abs(sum) < 1e15
    value = is_number and string.format(is_whole and "%.0f" or "%.17g", sum)
  end
  if not value or type(redis.pcall("HSET", key, field, value)) == "table" then
    redis.call("HINCRBY", KEYS[3], "not_shared", 1)
  end
end

local function change_place(is_acquire, held, line, member)
  if is_acquire then
    local last = redis.call("ZRANGE", line, -1, -1, "WITHSCORES")[2]
    redis.call("ZADD", line, (tonumber(last) or 0) + 1, member)
  else
    redis.call("ZREM", held, member)
    redis.call("ZREM", line, member)
  end
  hand_on(held, line)
end

local FINAL = { complete = true, halted = true, failed = true, cancelled = true }
local function has_ended(execution)
  local id = redis.call("GET", execution)
  return not id or FINAL[redis.call("HGET", KEYS[4] .. id, "status")]
end

local function ending()
  if word() == "1" then
    return {
      spec = word(), term = word(), retention = word(), values = word(), root = word(),
      groups = word(), group = word(), group_values = word(),
    }
  end
end
local function finish(one)
  -- Global values go with their root, or with the last child that outlived it.
  if one.values ~= "" and (one.root == "" or has_ended(one.root)) then
    redis.call("EXPIRE", one.values, one.retention)
  end
  if one.group ~= "" and redis.call("HINCRBY", one.groups, one.group, -1) <= 0 then
    redis.call("HDEL", one.groups, one.group)
    redis.call("EXPIRE", one.group_values, one.retention)
  end
  count_open(one.spec, -1, one.term)
end

-- Checks first, writes last: a script cannot be rolled back.
local function decision(last)
  local once = {}
  for n = 1, number() do
    once[n] = { word(), word() }
    if not is_pending(once[n][1], once[n][2]) then
      return -2
    end
  end
  local record, version, new = word(), word(), nil
  if word() == "1" then
    new = beginning()
    local why = refusal(new, record)
    if why then
      return why
    end
  elseif redis.call("HGET", record, "version") ~= version then
    return 0
  end
  for _, entry in ipairs(once) do
    pending[entry[1]][entry[2]] = false
  end

  dispatch()
  if new then
    begin(new)
  end
  for _ = 1, number() do
    revoke(word())
  end
  for _ = 1, number() do
    local key, owner = word(), word()
    if redis.call("GET", key) == owner then
      redis.call("DEL", key)
    end
  end
  for _ = 1, number() do
    share(word(), word(), word(), word())
  end
  for _ = 1, number() do
    change_place(word() == "1", word(), word(), word())
  end
  local ends = ending()
  local words = number()
  while words > 0 do
    redis.call(unpack(ARGV, at, at + words - 1))
    at = at + words
    words = number()
  end
  while at <= last do
    words = number()
    gather(at, at + words - 1)
    at = at + words
  end
  -- Last of all, for an execution may end where it begins.
  if ends then
    finish(ends)
  end
  return 1
end

local results = {}
while at <= #ARGV do
  local words = number()
  local last = at + words - 1
  local is_done, result = pcall(decision, last)
  if not is_done then
    failed = failed or result
    result = 0
  end
  results[#results + 1] = result
  at = last + 1
end
write_gathered()
if failed then
  if type(failed) == "table" then
    return failed
  end
  error(failed, 0)
end
return results
