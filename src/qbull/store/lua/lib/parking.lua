-- parking: jobs that wait for a worker that can run them. A parked job has the place of a delayed one
-- and is due at PARKED_DUE. If its lane has an order, it keeps its place there.
--   parked         what these jobs need (core/parking.py): a task, and the signatures that did not fit; with
--                  "label " or "resource " in front if the workers' code fits and they lack the rest
--   limited        the shared limits that parked jobs wait for (core/limits.py): "limit <name>", and a key
--   parked:<need>  since when they are parked, in ms → job id. Jobs that wait for a label, a resource or a
--                  shared limit come in the order of their priority: its level is in front of the time
-- NEEDS base
-- USES  clock record_layout record tell parked
local park, leave_parking, tell_parked
do -- a script has at most 200 local names at a time
  local LEVEL_STEP = 1e13

  -- The set that has this need.
  local function needs_with(need) return base .. (string.find(need, '^limit ') and 'limited' or 'parked') end

  -- Tell the workers that have the task of this need.
  function tell_parked(need)
    tell('bell', 'task ' .. string.match(string.match(need, '^[^\n]*'), '[^ ]*$'))
  end

  function park(id, need, record)
    local since, needs = now_ms, needs_with(need)
    if string.find(need, ' ') then since = since + LEVEL_STEP * tonumber(level_of(record), 16) end
    -- The worker that parks a job for a limit reads the partition, and knows of it.
    if needs ~= base .. 'limited' then tell_parked(need) end
    redis.call('ZADD', base .. 'delayed', PARKED_DUE, id)
    redis.call('ZADD', base .. 'parked:' .. need, string.format('%.0f', since), id)
    redis.call('SADD', needs, need)
  end

  local function leave_need(id, need)
    local list = base .. 'parked:' .. need
    if redis.call('ZREM', list, id) == 0 then return false end
    if redis.call('EXISTS', list) == 0 then redis.call('SREM', needs_with(need), need) end
    return true
  end

  -- A job that leaves `delayed` leaves its list here first. `probable`: the need that it probably has.
  function leave_parking(id, probable)
    if not is_parked(id) or (probable and leave_need(id, probable)) then return end
    for _, name in ipairs({'parked', 'limited'}) do
      for _, need in ipairs(redis.call('SMEMBERS', base .. name)) do leave_need(id, need) end
    end
  end
end
