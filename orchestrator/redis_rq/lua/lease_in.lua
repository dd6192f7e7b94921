-- Shared by scripts. The lease of a job of ours is its description, which ends with its token. A job of an earlier
-- release has it in a field of its own.
local function lease_in(token, description, noted)
  return noted or (description and string.sub(description, -1 - #token) == "|" .. token and description) or nil
end

-- A dispatch whose job waits has its sequence for a score, beyond all times. Every queue has a range of its own.
local WAITING, RANGE = 2 ^ 44, 2 ^ 40
local function written(sequence)
  return string.format("%.0f", sequence)
end
