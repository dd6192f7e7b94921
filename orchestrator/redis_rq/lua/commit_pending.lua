-- Part of commit.lua: which events are still pending. Each stream is queried once, and again for a single entry only
-- when the stream has more pending entries than one query returns.
local pending = {}
for _ = 1, next_number() do
  local stream, first, last = next_arg(), next_arg(), next_arg()
  local found = query_pending(stream, group, first, last, lookup_batch)
  local known = { is_whole = #found < lookup_batch }
  for _, entry in ipairs(found) do
    known[entry[1]] = true
  end
  pending[stream] = known
end

local function is_pending(stream, id)
  local known = pending[stream]
  if known[id] == nil and not known.is_whole then
    known[id] = is_event_pending(stream, group, id)
  end
  return known[id]
end

-- An event of one commit is not pending for the commits that follow in the same call.
local function mark_answered(entries)
  for _, entry in ipairs(entries) do
    pending[entry[1]][entry[2]] = false
  end
end
