-- lost_workers: the workers that were lost within a day, and those whose heartbeats have stopped.
-- KEYS  base
-- FLAGS no-writes
-- NAMES workers roster lost truce
-- USES  clock
-- GIVES since when, worker, its entry in the registry or '' …
local found = {}
for _, line in ipairs(redis.call('LRANGE', lost, 0, -1)) do
  local at, worker, member = string.match(line, '^(%d+) ([^\n]*)\n(.*)$')
  found[#found + 1] = tonumber(at)
  found[#found + 1] = worker
  found[#found + 1] = member
end
if redis.call('EXISTS', truce) == 1 then return found end
local silent = redis.call('ZRANGE', workers, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, 100, 'WITHSCORES')
for i = 1, #silent, 2 do
  found[#found + 1] = tonumber(silent[i + 1])
  found[#found + 1] = silent[i]
  found[#found + 1] = redis.call('HGET', roster, silent[i]) or ''
end
return found
