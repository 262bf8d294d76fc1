-- flow_follow: let a job wait for one of this partition that existed before it. If that one has ended, the
-- message about it leaves at once. The same call sent again changes nothing.
-- KEYS  base
-- NAMES extras followed
-- USES  index flow describe
-- ARGV  id name follower
--       name: of the job that waits; follower: its address (core/flow.py)
-- GIVES "following", "ended", "moving" (to another partition just now), "unknown"
look_up({id})
local place = place_of(id)
if not place then return 'unknown' end
local kind = string.sub(place, 1, 1)
if kind == 'm' then return 'moving' end
local record = ENDED[kind] and describe(id, place)[2]
if ENDED[kind] and not record then return 'unknown' end
if kind ~= 'c' then
  redis.call('HSET', base .. 'job:' .. id, 'follower:' .. name, follower)
  redis.call('SADD', extras, id)
  redis.call('SADD', followed, id)
end
if not record then return 'following' end
tell_follower(kind, id, record, follower)
commit()
return 'ended'
