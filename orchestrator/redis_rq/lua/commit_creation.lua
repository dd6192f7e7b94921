-- Part of commit.lua: create an execution.

local function read_creation()
  local new = {
    key = next_arg(), id = next_arg(), spec = specs[next_number()],
    signals = next_arg(), known_signals = next_number(),
  }
  if next_arg() == "1" then
    new.parent = { record = next_arg(), step = next_arg(), token = next_arg(), child = next_arg() }
  end
  if next_arg() == "1" then
    new.root, new.window = next_arg(), next_arg()
  end
  if next_arg() == "1" then
    new.replaced = { id = next_arg(), record = next_arg(), version = next_arg() }
  end
  new.values = next_arg()
  return new
end

local function is_awaited(parent)
  local is_json, step = pcall(cjson.decode, must("HGET", parent.record, parent.step) or "")
  return is_json and type(step) == "table" and step.token == parent.token and step.child == parent.child
end

local function has_other_document(spec)
  if not spec.is_checked then
    local stored = must("HGET", spec.key, "document")
    if stored and stored ~= spec.document then
      return true
    end
    spec.is_checked, spec.is_stored = true, stored
  end
  return false
end

-- Only one creation gets an execution id. The pointer is written with the record.
local function is_id_free(new)
  local owner, replaced = must("GET", new.key), new.replaced
  return not owner
    or replaced ~= nil and owner == replaced.id
      and must("HGET", replaced.record, "version") == replaced.version
end

-- The status when an execution cannot be created; nil when it can.
local function check_creation(new, record)
  if new.parent and not is_awaited(new.parent) then
    return STATUS.ORPHAN
  end
  if new.root and must("EXISTS", new.root) == 1 then
    return STATUS.REPEATED
  end
  if has_other_document(new.spec) then
    return STATUS.SPEC_COLLISION
  end
  if must("LLEN", new.signals) ~= new.known_signals then
    return must("EXISTS", new.key) == 1 and not new.replaced and STATUS.EXISTS or STATUS.EARLY_SIGNAL
  end
  -- The record must not exist (then its version reads as false), unless it is the one to replace.
  local replaced = new.replaced
  local version = replaced ~= nil and replaced.record == record and replaced.version
  local found = must("HGET", record, "version")
  if found ~= version then
    return found and STATUS.EXISTS or STATUS.CONFLICT
  end
  if not is_id_free(new) then
    return STATUS.EXISTS
  end
end

-- A record without its spec could not be read, so the spec comes first. It does no harm without executions.
local function store_spec(spec)
  if not spec.is_kept then
    if not spec.is_stored then
      must("HSET", spec.key, "document", spec.document)
    end
    must("PERSIST", spec.key)
    spec.is_kept = true
  end
end

local function create(new)
  run("SET", new.key, new.id)
  count_open(new.spec.key, 1)
  if new.known_signals > 0 then
    run("DEL", new.signals)
  end
  -- An earlier execution with the same id may have left values. They do not belong to this one.
  if new.values ~= "" then
    run("DEL", new.values)
  end
  if new.root then
    run("SET", new.root, new.id, "EX", new.window)
  end
end
