-- schedule_runs: the newest runs of a schedule, in the field `runs` of its hash. A line for each: time, id of
-- the job, outcome and milliseconds that it took (core/schedule_runs.py).
-- NEEDS base
local MAX_RUNS = 30

local function runs_of(state)
  local lines = {}
  for line in string.gmatch(redis.call('HGET', state, 'runs') or '', '[^\n]+') do lines[#lines + 1] = line end
  return lines
end

-- Add runs. `added`: id ("-" without a job) and outcome ("-" before its end) of each.
local function add_runs(state, at_ms, added)
  if #added == 0 then return end
  local lines = runs_of(state)
  for i = 1, #added, 2 do
    lines[#lines + 1] = table.concat({string.format('%.0f', at_ms), added[i], added[i + 1], '0'}, ' ')
  end
  redis.call('HSET', state, 'runs', table.concat(lines, '\n', math.max(#lines - MAX_RUNS + 1, 1)))
end
