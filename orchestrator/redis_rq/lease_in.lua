-- Shared by scripts. The lease of a job of ours, by its data: it is the first that the harness is called with. RQ
-- compresses the data of a job that fails, so a stock worker notes the lease beside it; jobs of earlier releases
-- have it there too.
local CALL = '^%["orchestrator%.worker%.harness%.run_step",null,%["([^"]*)"'
local function lease_in(data, noted)
  return noted or (data and string.match(data, CALL))
end

-- A dispatch whose job waits has its sequence for a score, beyond all times. Every queue has a range of its own.
local WAITING, RANGE = 2 ^ 44, 2 ^ 40
local function written(sequence)
  return string.format("%.0f", sequence)
end
