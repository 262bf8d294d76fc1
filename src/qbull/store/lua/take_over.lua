-- take_over: a worker takes over a delivery that another worker holds and has not started. The entry stays
-- the same, and so does its fence.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  place holder taker
-- GIVES 1 if the taker has the delivery now, 0 if it has ended or is another worker's
local stream, entry = base .. 'ready:' .. string.sub(place, 1, 1), string.sub(place, 2)
local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1)
local has = not pending.err and pending[1] and pending[1][2]
if has == taker then return 1 end
if has ~= holder then return 0 end
redis.call('XCLAIM', stream, 'workers', taker, 0, entry, 'JUSTID')
return 1
