-- workers: the live workers and their registrations. A silent worker that is not forgotten yet is left out,
-- and so are leftovers of a lost list.
-- KEYS  base
-- FLAGS no-writes
-- NAMES workers roster
-- USES  clock
-- GIVES worker, what …
local living = redis.call('ZRANGE', workers, '(' .. string.format('%.0f', now_ms), '+inf', 'BYSCORE')
local found = {}
for from = 1, #living, 1000 do
  local some = {unpack(living, from, math.min(from + 999, #living))}
  for i, what in ipairs(redis.call('HMGET', roster, unpack(some))) do
    found[#found + 1] = some[i]
    found[#found + 1] = what or ''
  end
end
return found
