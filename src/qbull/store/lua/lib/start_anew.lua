-- start_anew: forget the history of a durable job (core/durable.py): its steps, its calls, and the list of
-- values that it has emitted. Its signals, its published values and its stream stay.
-- NEEDS base
local function start_anew(id)
  local job, gone = base .. 'job:' .. id, {}
  local forgotten = {step = true, call = true, emit = true, emitted = true}
  for _, field in ipairs(redis.call('HKEYS', job)) do
    if forgotten[string.match(field, '^[^:]*')] then gone[#gone + 1] = field end
  end
  for from = 1, #gone, 1000 do redis.call('HDEL', job, unpack(gone, from, math.min(from + 999, #gone))) end
end
