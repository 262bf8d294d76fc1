-- token_used: note that a token was used, unless it was revoked in the meantime.
-- KEYS  base
-- NAMES tokens
-- USES  clock
-- FLAGS allow-oom
-- ARGV  id
if redis.call('HEXISTS', tokens, id) == 0 then return 0 end
redis.call('HSET', base .. 'tokens:used', id, string.format('%.0f', now_ms))
return 1
