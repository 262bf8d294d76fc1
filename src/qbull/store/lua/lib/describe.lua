-- describe: the details of a job, given its place.
-- NEEDS base
-- NAMES delayed
-- USES  clock record train parked
local ENDED = {c = 'completed', f = 'failed', x = 'cancelled'}

local function in_entry(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)
  return found[1] and found[1][2] or {}
end

-- The entry, the worker and the time of delivery of a job that runs in a train. Only the first unsettled job
-- of a train runs.
local function runs_at(id, lane)
  local level, entry, settled = string.match(train_state(lane) or '', '^(.)(%S+) ?(%d*)$')
  if not level then return nil end
  local stream = base .. 'ready:' .. level
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  if pending.err or not pending[1] then return nil end
  local first = ids_of_train(in_entry(stream, entry), tonumber(settled) or 0)[1]
  if first == id then return entry, pending[1][2], now_ms - pending[1][3] end
end

-- Its state, record (with the ending, if it has ended), due time or entry, worker, and the time at which the
-- worker got it. Empty if nothing is at its place.
local function describe(id, place)
  local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
  if kind == 'l' then
    local lane = lane_of(at)
    local entry, worker, since
    if lane then entry, worker, since = runs_at(id, lane) end
    if entry then return {'active', at, entry, worker, since} end
    return {'waiting', at, '', '', 0}
  end
  if kind == 'd' and is_parked(id) then return {'waiting', at, '', '', 0} end
  if kind == 'd' or kind == 'm' then
    return {'delayed', at, redis.call('ZSCORE', delayed, id) or '', '', 0}
  end
  if kind == 'r' then
    local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
    local record = in_entry(stream, entry)[2] or ''
    local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
    if not pending.err and pending[1] then
      return {'active', record, entry, pending[1][2], now_ms - pending[1][3]}
    end
    return {'waiting', record, entry, '', 0}
  end
  local fields = in_entry(base .. ENDED[kind], at)
  for i = 1, #fields, 2 do
    if fields[i] == id then return {ENDED[kind], fields[i + 1], at, '', 0} end
  end
  return {}
end
