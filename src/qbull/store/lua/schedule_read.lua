-- schedule_read: the schedules that are named, or those that are due.
-- KEYS  base
-- NAMES schedules
-- USES  clock
-- FLAGS no-writes
-- ARGV  most:int  … name
-- GIVES the time, the milliseconds until the next is due (-1: none), then name, {field, value …} of each
local names = {}
for i = rest, #ARGV do names[#names + 1] = ARGV[i] end
if most > 0 then names = redis.call('ZRANGE', schedules, '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, most) end
local head = redis.call('ZRANGE', schedules, 0, 0, 'WITHSCORES')
local wait_ms = -1
if head[1] and head[2] ~= 'inf' then wait_ms = math.max(math.ceil(tonumber(head[2]) - now_ms), 0) end
local found = {now_ms, wait_ms}
for _, name in ipairs(names) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('HGETALL', base .. 'schedule:' .. name)
end
return found
