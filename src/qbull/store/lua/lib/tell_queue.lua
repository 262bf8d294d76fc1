-- tell_queue: publish a wake-up for every worker of a queue. `base` is the queue's.
-- NEEDS base
local function tell_queue(word)
  redis.call('PUBLISH', string.match(base, '^{(.+):[^:]+}:$') .. ':bell', base .. '\n' .. word)
end
