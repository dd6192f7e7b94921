-- Write commits, each of them whole or not at all. The shared parts come before this file, in the order of
-- COMMIT_PARTS in store.py: errors, slots, leases, arguments, pending, batch, metrics, creation, jobs, shared.
--
-- KEYS[1] the leases   KEYS[2] the sequences of the queues   KEYS[3] the counters   KEYS[4] the prefix of records
-- KEYS[5] what is to be repaired: executions that were written in part, and members that could not be removed
-- KEYS[6] the prefix of the channels on which a change of an execution is published
-- KEYS[7] the counters of the metrics   KEYS[8] the concurrency keys that are in use
-- ARGV    see commit_args.py
-- Returns one STATUS for each commit; after an error two lists, the statuses and the texts of the errors, "" for none.
--
-- A script cannot be rolled back. The writes of a commit are in this order:
--
--   checks             an error ends the commit, and nothing is written
--   fragile writes     an error ends the commit, and what was written by then does no harm
--   the record         from here on the commit is written
--   all other writes   an error is kept, and the script goes on; coordinators repair the execution from its record
--
-- A commit with an error in the last part is written in part: its execution is listed in KEYS[5] until it is repaired. A
-- member that could not be removed from a sorted set is listed as its key, a line feed, and the member.

local function read_required_entries()
  local entries = {}
  for n = 1, next_number() do
    entries[n] = { next_arg(), next_arg() }
    if not is_pending(entries[n][1], entries[n][2]) then
      return nil
    end
  end
  return entries
end

-- Run the commands in ARGV, each: the number of its args, then the args. 0 ends them.
local function run_commands(call)
  local args = next_number()
  while args > 0 do
    call(unpack(ARGV, at, at + args - 1))
    at = at + args
    args = next_number()
  end
end

-- Write the history and the record. The history comes first, because its key may have a wrong type. If the record then
-- cannot be written, the new entries of the history are removed.
local function write_record()
  local history, entries = nil, 0
  local is_done, problem = pcall(run_commands, function(...)
    must(...)
    if select(1, ...) == "RPUSH" then
      history, entries = select(2, ...), entries + select("#", ...) - 2
    end
  end)
  if not is_done then
    if history then
      redis.pcall("LTRIM", history, 0, -1 - entries)
    end
    error(problem, 0)
  end
end

-- The writes after the record, up to ARGV[last].
local function write_rest(last, new, pushed)
  write_jobs(pushed)
  if new then
    create(new)
  end
  for _ = 1, next_number() do
    revoke(next_arg())
  end
  for _ = 1, next_number() do
    release_root(next_arg(), next_arg())
  end
  for _ = 1, next_number() do
    write_shared_value(next_arg(), next_arg(), next_arg(), next_arg())
  end
  for _ = 1, next_number() do
    change_slot(next_arg() == "1", next_arg(), next_arg(), next_arg())
  end
  local ended = read_end()
  run_commands(run)
  while at <= last do
    local args = next_number()
    local add = ARGV[at] == "COUNT" and add_counts or add_to_batch
    add(at, at + args - 1)
    at = at + args
  end
  -- Last, because an execution may end in the commit that creates it.
  if ended then
    finish(ended)
  end
end

-- The executions that were written or deleted.
local changed = {}

-- Write one commit, whose last argument is ARGV[last]. Returns its status, and the id of the execution if it is written.
local function write_commit(last)
  local entries = read_required_entries()
  if not entries then
    return STATUS.GONE
  end
  local record, version, new = next_arg(), next_arg(), nil
  if next_arg() == "1" then
    new = read_creation()
    local status = check_creation(new, record)
    if status then
      return status
    end
  elseif must("HGET", record, "version") ~= version then
    return STATUS.CONFLICT
  end
  if new then
    store_spec(new.spec)
  end
  local pushed = push_jobs()
  run_commands(must) -- fragile writes
  write_record()
  mark_answered(entries)
  local execution = string.sub(record, #KEYS[4] + 1)
  changed[#changed + 1] = execution
  if new and new.replaced and new.replaced.id ~= execution then
    changed[#changed + 1] = new.replaced.id
  end
  local is_done, problem = pcall(write_rest, last, new, pushed)
  if not is_done then
    kept_errors[#kept_errors + 1] = error_text(problem)
  end
  return STATUS.YES, execution
end

local statuses, written = {}, {}
while at <= #ARGV do
  local args = next_number()
  local last, errors = at + args - 1, #kept_errors
  local is_done, status, execution = pcall(write_commit, last)
  if not is_done then
    errors_of[#statuses + 1] = error_text(status)
    status = STATUS.FAILED
  elseif execution then
    written[#statuses + 1] = execution
    errors_of[#statuses + 1] = kept_errors[errors + 1]
  end
  statuses[#statuses + 1] = status
  at = last + 1
end

-- A batched command belongs to several commits. After an error all of them may be written in part.
local errors = #kept_errors
write_batch()
write_counts()
local texts, has_errors = {}, false
for n = 1, #statuses do
  texts[n] = errors_of[n] or written[n] and kept_errors[errors + 1] or ""
  if texts[n] ~= "" then
    has_errors = true
    if written[n] then
      redis.pcall("SADD", KEYS[5], written[n])
    end
  end
end
for _, removal in ipairs(kept_removals) do
  for n = 2, #removal do
    redis.pcall("SADD", KEYS[5], removal[1] .. "\n" .. removal[n])
  end
end
-- Last, so that a subscriber reads what was written. Errors are ignored: the Redis user may lack the right to publish,
-- and subscribers also look for changes on their own.
for _, execution in ipairs(changed) do
  redis.pcall("PUBLISH", KEYS[6] .. execution, "")
end
if has_errors then
  return { statuses, texts }
end
return statuses
