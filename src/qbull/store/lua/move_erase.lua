-- move_erase: delete all names of a closed partition that has no jobs and no messages about them. Its mark
-- stays (move_close.lua). It waits until the starts of its lanes no longer count for their rates.
-- KEYS  base
-- NAMES index bands schedules
-- USES  record_layout index
-- FLAGS allow-oom
-- GIVES 1 if it is empty
if not is_closed() or redis.call('HLEN', index) > 1 or redis.call('ZCARD', schedules) > 0 then return 0 end
if redis.call('XLEN', base .. 'reports') + redis.call('XLEN', base .. 'outgoing') > 0 then return 0 end
if redis.call('EXISTS', base .. 'rated') == 1 then return 0 end
local names = {'ready:0', 'ready:5', 'ready:' .. UNPARKED_BAND}
for _, level in ipairs(redis.call('SMEMBERS', bands)) do names[#names + 1] = 'ready:' .. level end
for _, name in ipairs({
  'delayed', 'lanes', 'ranked', 'trains', 'completed', 'failed', 'cancelled', 'kept', 'bands', 'extras',
  'cancelling', 'followed', 'stats', 'errors', 'lease', 'waiters',
  'ahead', 'held', 'leaving', 'arrivals', 'expiring', 'reports', 'outgoing',
}) do names[#names + 1] = name end
for i, name in ipairs(names) do names[i] = base .. name end
redis.call('UNLINK', unpack(names))
return 1
