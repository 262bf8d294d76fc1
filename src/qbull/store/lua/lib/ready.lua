-- ready: put jobs in front of the workers. Uses record, index.
-- Band 0 is for what was handed over before and came back: it must not queue up again behind everybody.
local function add_ready(band, pairs_)
  local entry = redis.call('XADD', base .. 'ready:' .. band, '*', unpack(pairs_))
  local place = 'r' .. band .. entry
  for i = 1, #pairs_, 2 do put(pairs_[i], place) end
  if band ~= '5' and band ~= '0' and redis.call('SADD', bands, band) == 1 then
    tell('bell', 'bands')
  end
end
