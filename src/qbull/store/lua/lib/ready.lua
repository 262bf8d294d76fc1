-- ready: put jobs in front of the workers. Uses record, index, tell.
local function is_after(entry, other)
  local ms, seq = string.match(entry, '^(%d+)-(%d+)$')
  local other_ms, other_seq = string.match(other, '^(%d+)-(%d+)$')
  ms, seq, other_ms, other_seq = tonumber(ms), tonumber(seq), tonumber(other_ms), tonumber(other_seq)
  return ms > other_ms or (ms == other_ms and seq > other_seq)
end

-- Band 0 is for what was handed over before and came back: it must not queue up again behind everybody.
-- A job that comes back gets a higher entry than it had, whatever the clock says: its fence must rise.
local function add_ready(band, pairs_, above)
  local stream = base .. 'ready:' .. band
  local entry = redis.call('XADD', stream, '*', unpack(pairs_))
  if above and not is_after(entry, above) then
    redis.call('XDEL', stream, entry)
    entry = string.format('%.0f-0', string.match(above, '^%d+') + 1)
    redis.call('XADD', stream, entry, unpack(pairs_))
  end
  local place = 'r' .. band .. entry
  for i = 1, #pairs_, 2 do put(pairs_[i], place) end
  if band ~= '5' and band ~= '0' and redis.call('SADD', bands, band) == 1 then
    tell('bell', 'bands')
  end
end
