-- Part of commit.lua: what it returns for each commit, and its arguments, read one after the other. commit_args.py
-- documents their layout.

-- store.py maps these to the members of Committed with the same names.
local STATUS = {
  YES = 1,             -- written
  CONFLICT = 0,        -- the record is at another version
  EXISTS = -1,         -- an execution with this id exists
  GONE = -2,           -- an event is no longer pending
  SPEC_COLLISION = -3, -- another document has the same workflow_id
  EARLY_SIGNAL = -4,   -- a signal arrived that the decision does not include
  ORPHAN = -5,         -- no parent waits for this child
  REPEATED = -6,       -- an execution was started under the same idempotency root
  FAILED = -7,         -- an error came before the record was written; the second list of the reply has its text
}

local at, errors_of = 1, {}
local function next_arg()
  at = at + 1
  return ARGV[at - 1]
end
local function next_number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

local group, lookup_batch = next_arg(), next_number()
local specs = {}
for n = 1, next_number() do
  specs[n] = { key = next_arg(), document = next_arg() }
end
