-- find: where a job is and what is known of it, in one look.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index parked delayed
-- ARGV  id
-- GIVES nothing for an unknown job, else its state, record (sealed, where it has ended), due time or entry, worker
local place = redis.call('HGET', index, id)
if not place then return {} end
local kind, at = string.sub(place, 1, 1), string.sub(place, 2)

local function in_entry(stream, entry)
  local found = redis.call('XRANGE', stream, entry, entry)
  return found[1] and found[1][2] or {}
end

if kind == 'l' then return {'waiting', redis.call('HGET', parked, id) or '', '', ''} end
if kind == 'd' then return {'delayed', redis.call('HGET', parked, id) or '', redis.call('ZSCORE', delayed, id) or '', ''} end
if kind == 'r' then
  local stream, entry = base .. 'ready:' .. string.sub(at, 1, 1), string.sub(at, 2)
  local fields = in_entry(stream, entry)
  local record, first = '', nil
  for i = 1, #fields, 2 do
    if not first and redis.call('HGET', index, fields[i]) == place then first = fields[i] end
    if fields[i] == id then record = fields[i + 1] end
  end
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
  if first == id and not pending.err and pending[1] then
    return {'active', record, entry, pending[1][2]}
  end
  return {'waiting', record, entry, ''}
end
local streams = {c = 'completed', f = 'failed', x = 'cancelled'}
local fields = in_entry(base .. streams[kind], at)
for i = 1, #fields, 2 do
  if fields[i] == id then return {streams[kind], fields[i + 1], at, ''} end
end
return {}
