-- workers: the workers that live, and what each has said of itself. One that has fallen silent without being
-- buried
-- is left out, and so is what a lost list has left behind.
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
