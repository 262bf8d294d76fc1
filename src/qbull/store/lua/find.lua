-- find: where a job is and what is known of it, in one look.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed trains
-- USES  record index train
-- ARGV  id
-- GIVES nothing for an unknown job, else its progress, state, record (sealed, where it has ended), due time or entry, worker
local place = redis.call('HGET', index, id)
if not place then return {} end
local kind, at = string.sub(place, 1, 1), string.sub(place, 2)
local progress = redis.call('HGET', base .. 'job:' .. id, 'progress') or ''

local function in_entry(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)
  return found[1] and found[1][2] or {}
end

-- The first of a train that is handed over is the one that runs.
local function runs_at(lane)
  local band, entry, settled = string.match(train_state(lane) or '', '^(.)(%S+) ?(%d*)$')
  if not band then return nil end
  local stream = base .. 'ready:' .. band
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  if pending.err or not pending[1] then return nil end
  if ids_of_train(in_entry(stream, entry), tonumber(settled) or 0)[1] == id then return entry, pending[1][2] end
end

if kind == 'l' then
  local lane = lane_of(at)
  local entry, worker
  if lane then entry, worker = runs_at(lane) end
  if entry then return {progress, 'active', at, entry, worker} end
  return {progress, 'waiting', at, '', ''}
end
if kind == 'd' then return {progress, 'delayed', at, redis.call('ZSCORE', delayed, id) or '', ''} end
if kind == 'r' then
  local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
  local fields = in_entry(stream, entry)
  local record = fields[2] or ''
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  if not pending.err and pending[1] then
    return {progress, 'active', record, entry, pending[1][2]}
  end
  return {progress, 'waiting', record, entry, ''}
end
local streams = {c = 'completed', f = 'failed', x = 'cancelled'}
local fields = in_entry(base .. streams[kind], at)
for i = 1, #fields, 2 do
  if fields[i] == id then return {progress, streams[kind], fields[i + 1], at, ''} end
end
return {}
