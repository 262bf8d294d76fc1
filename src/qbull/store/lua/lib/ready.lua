-- ready: put jobs in front of the workers.
-- NEEDS base
-- NAMES bands
-- USES  index tell
local function is_after(entry, other)
  local ms, seq = string.match(entry, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)-(%d+)$')
  ms, seq, other_ms, other_seq = tonumber(ms), tonumber(seq), tonumber(other_ms), tonumber(other_seq)
  return ms > other_ms or (ms == other_ms and seq > other_seq)
end

-- Level 0 is for returned deliveries, so that they do not queue up behind everybody again. A returned job
-- gets a higher entry than before, whatever the clock says, because its fence must rise. Returns the place.
local function add_entry(level, name, value, above)
  local stream = base .. 'ready:' .. level
  local entry = redis.call('XADD', stream, '*', name, value)
  if above and not is_after(entry, above) then
    redis.call('XDEL', stream, entry)
    entry = string.format('%.0f-0', string.match(above, '^%d+') + 1)
    redis.call('XADD', stream, entry, name, value)
  end
  if level ~= '5' and level ~= '0' and redis.call('SADD', bands, level) == 1 then
    tell('bell', 'bands')
  end
  return level .. entry
end

local function add_ready(level, id, record, above)
  put(id, 'r' .. add_entry(level, id, record, above))
end
