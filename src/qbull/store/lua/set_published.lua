-- set_published: set a published value of a job from outside its run, in any state. The last value counts, so
-- the same call sent again changes nothing.
-- KEYS  base
-- NAMES index extras
-- ARGV  id name value
-- GIVES "set", "unknown", or "moving" (to another partition just now)
local place = redis.call('HGET', index, id)
if not place then return 'unknown' end
if string.sub(place, 1, 1) == 'm' then return 'moving' end
redis.call('SADD', extras, id)
redis.call('HSET', base .. 'job:' .. id, 'published:' .. name, value)
return 'set'
