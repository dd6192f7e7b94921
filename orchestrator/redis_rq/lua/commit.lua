-- Write commits, each of them whole or not at all. The shared parts come before this file, in the order of
-- COMMIT_PARTS in store.py: arguments, pending, batch, creation, jobs, shared.
--
-- KEYS[1] the leases   KEYS[2] the sequences of the queues   KEYS[3] the counters   KEYS[4] the prefix of records
-- ARGV    see commit_args.py
-- Returns one STATUS for each commit.
--
-- A script cannot be rolled back, so every check of a commit comes before its first write. An error inside a commit
-- is returned after all commits have run; the others are written.

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

-- Write one commit, whose last argument is ARGV[last].
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
  elseif redis.call("HGET", record, "version") ~= version then
    return STATUS.CONFLICT
  end
  mark_answered(entries)

  dispatch()
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
  local args = next_number()
  while args > 0 do
    redis.call(unpack(ARGV, at, at + args - 1))
    at = at + args
    args = next_number()
  end
  while at <= last do
    args = next_number()
    add_to_batch(at, at + args - 1)
    at = at + args
  end
  -- Last, because an execution may end in the commit that creates it.
  if ended then
    finish(ended)
  end
  return STATUS.YES
end

local statuses = {}
while at <= #ARGV do
  local args = next_number()
  local last = at + args - 1
  local is_written, status = pcall(write_commit, last)
  if not is_written then
    failed = failed or status
    status = STATUS.CONFLICT
  end
  statuses[#statuses + 1] = status
  at = last + 1
end
write_batch()
if failed then
  if type(failed) == "table" then
    return failed
  end
  error(failed, 0)
end
return statuses
