-- find: the place of a job and its details, in one call.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index
-- USES  describe
-- ARGV  id
-- GIVES nothing for an unknown job, else its progress, state, record (with the ending, if it has ended), due
--       time or entry, worker, and when that worker got it (in ms, else 0)
local place = redis.call('HGET', index, id)
if not place then return {} end
local seen = describe(id, place)
if not seen[1] then return {} end
return {redis.call('HGET', base .. 'job:' .. id, 'progress') or '', unpack(seen)}
