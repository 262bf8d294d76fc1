-- tell_all: publish a wake-up for every worker of the app.
-- NEEDS base
local function tell_all(word)
  redis.call('PUBLISH', string.match(base, '^{(.+)}:$') .. ':bell', '\n' .. word)
end
