-- extras: what a job has besides its record, in job:<id>, log:<id> and cancelling; `extras` knows which jobs
-- have any.
-- NEEDS base
local function forget_extras(id)
  if redis.call('SREM', base .. 'extras', id) == 1 then
    redis.call('UNLINK', base .. 'job:' .. id, base .. 'log:' .. id)
    redis.call('HDEL', base .. 'cancelling', id)
  end
end
