-- Shared by scripts: the lease of a job, and the scores of leases whose jobs wait in a queue.
--
-- The lease of one of our jobs is its description. It ends with "|<dispatch>", and the id of the job is "<dispatch>" or
-- "<queue>__<dispatch>". Any other job has no lease.
local function job_lease(id, description)
  local dispatch = description and string.match(description, "|([^|]+)$")
  if dispatch and (id == dispatch or string.sub(id, -2 - #dispatch) == "__" .. dispatch) then
    return description
  end
  return nil
end

-- While a job waits in its queue, the score of its lease is its sequence. Sequences are larger than any time in
-- ms, and each queue has a range of its own. keys.py has the same numbers.
local FIRST_SEQUENCE, SEQUENCES_PER_QUEUE = 2 ^ 44, 2 ^ 40
local function format_score(sequence)
  return string.format("%.0f", sequence)
end
