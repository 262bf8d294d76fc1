-- move_away: another server has a copy of the partition. Delete it here and tell its address, in one step.
-- The caller watches all names, so nothing has changed since it copied them.
-- KEYS  base
-- NAMES index outgoing
-- USES  used_levels
-- FLAGS allow-oom
-- ARGV  mark  … name
--       mark: tells the address of the other server
--       name: a name of the partition, without the base
-- GIVES "moved"; or "busy", and nothing is deleted, if a worker has a job or a message of a flow waits
for _, level in ipairs(used_levels()) do
  local pending = redis.pcall('XPENDING', base .. 'ready:' .. level, 'workers')
  if not pending.err and pending[1] > 0 then return 'busy' end
end
if redis.call('XLEN', outgoing) > 0 then return 'busy' end
for i = rest, #ARGV do redis.call('UNLINK', base .. ARGV[i]) end
redis.call('DEL', index)
redis.call('HSET', index, '\n', mark)
return 'moved'
