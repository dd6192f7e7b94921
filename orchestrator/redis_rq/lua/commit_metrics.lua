-- Part of commit.lua: the counters of the metrics, written once after the last commit. They are no part of an
-- execution: an error of a write is ignored, and nothing is repaired for it.
--
-- KEYS[7] is a hash. A counter is the field <name>|<label>, where the label is the name of a workflow or of a queue. Any
-- producer chooses names, so only the first MAX_LABELS of each kind get counters of their own. They are the fields
-- <kind>|<label>, and the field <kind> is their number. All further names count as OTHER.

local MAX_LABELS, OTHER = 200, "other"

-- By kind, then by label: the fields, and the sum of each.
local counts = { workflow = {}, queue = {} }

-- Collect the counts in ARGV[first..last]: "COUNT", kind, label, then field, number, ...
local function add_counts(first, last)
  local labels, label = counts[ARGV[first + 1]], ARGV[first + 2]
  local sums = labels[label]
  if not sums then
    sums = {}
    labels[label] = sums
    labels[#labels + 1] = label
  end
  for n = first + 3, last, 2 do
    local field = ARGV[n]
    if not sums[field] then
      sums[#sums + 1] = field
    end
    sums[field] = (sums[field] or 0) + tonumber(ARGV[n + 1])
  end
end

local function bounded_label(kind, label)
  if redis.pcall("HEXISTS", KEYS[7], kind .. "|" .. label) == 1 then
    return label
  end
  if (tonumber(redis.pcall("HGET", KEYS[7], kind) or "0") or 0) >= MAX_LABELS then
    return OTHER
  end
  redis.pcall("HSET", KEYS[7], kind .. "|" .. label, "")
  redis.pcall("HINCRBY", KEYS[7], kind, 1)
  return label
end

local function write_counts()
  for kind, labels in pairs(counts) do
    for _, label in ipairs(labels) do
      local bounded = bounded_label(kind, label)
      for _, field in ipairs(labels[label]) do
        redis.pcall("HINCRBY", KEYS[7], field .. "|" .. bounded, string.format("%.0f", labels[label][field]))
      end
    end
  end
end
