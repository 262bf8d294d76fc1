-- finish: the streams of finished jobs, kept by count and by age. Uses clock, index.
local function finish(stream, letter, id, record, ending)
  local entry = redis.call('XADD', base .. stream, '*', id, record, 'end', ending)
  put(id, letter .. entry)
end

-- Drop the oldest beyond `most` and those older than `age_ms` (-1: no bound of that kind), a bounded number a call.
local function trim(stream, most, age_ms, bound)
  local name = base .. stream
  local over = 0
  if most >= 0 then over = math.max(redis.call('XLEN', name) - most, 0) end
  local old = {}
  if over > 0 then
    old = redis.call('XRANGE', name, '-', '+', 'COUNT', math.min(over, bound))
  end
  if age_ms >= 0 and #old < bound then
    local aged = redis.call('XRANGE', name, '-', string.format('%.0f', now_ms - age_ms), 'COUNT', bound)
    if #aged > #old then old = aged end
  end
  if #old == 0 then return 0 end
  local ids, extras = {}, {}
  for i, found in ipairs(old) do
    ids[i] = found[2][1]
    extras[i] = base .. 'job:' .. ids[i]
  end
  in_chunks('HDEL', index, ids)
  for from = 1, #extras, 2000 do redis.call('UNLINK', unpack(extras, from, math.min(from + 1999, #extras))) end
  redis.call('XTRIM', name, 'MAXLEN', redis.call('XLEN', name) - #old)
  return #old
end
