-- state: the state of a job, given its place.
-- NEEDS base
-- USES  record train delivery parked
local STATE = {c = 'completed', f = 'failed', x = 'cancelled', d = 'delayed', m = 'moving'}

local function handed_over(place)
  local entry = string.sub(place, 2)
  local stream = base .. 'ready:' .. string.sub(place, 1, 1)
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  return not pending.err and pending[1] ~= nil
end

-- The place of the train that a job is in, and the unsettled jobs of the train. nil if the job is in no
-- train.
local function train_of(id, lane)
  local place = string.match(train_state(lane) or '', '^%S+')
  local ids = place and unsettled(string.sub(place, 1, 1), string.sub(place, 2)) or {}
  for i = 1, #ids do
    if ids[i] == id then return place, ids end
  end
end

local function state_at(id, place)
  local kind = string.sub(place, 1, 1)
  if kind == 'r' then return handed_over(string.sub(place, 2)) and 'active' or 'waiting' end
  if kind == 'd' and is_parked(id) then return 'waiting' end
  if kind ~= 'l' then return STATE[kind] end
  local train, ids = train_of(id, lane_of(string.sub(place, 2)))
  return train and ids[1] == id and handed_over(train) and 'active' or 'waiting'
end
