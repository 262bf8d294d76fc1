-- tell: publish a message on one of the app's two channels: <prefix>:bell and <prefix>:done.
-- NEEDS base
local function tell(channel, text)
  redis.call('PUBLISH', string.match(base, '^{(.+):[^:]+:%d+}:$') .. ':' .. channel, base .. '\n' .. text)
end
