-- extras: the data of a job besides its record, in job:<id>, log:<id>, stream:<id>, cancelling and followed.
-- The set `extras` lists the jobs that have any.
-- NEEDS base
local function forget_extras(id)
  if redis.call('SREM', base .. 'extras', id) == 1 then
    redis.call('UNLINK', base .. 'job:' .. id, base .. 'log:' .. id, base .. 'stream:' .. id)
    redis.call('HDEL', base .. 'cancelling', id)
    redis.call('SREM', base .. 'followed', id)
  end
end
