-- token_find: the stored token, and the current time.
-- KEYS  base
-- FLAGS no-writes
-- NAMES tokens
-- USES  clock
-- ARGV  id
return {redis.call('HGET', tokens, id) or '', now_ms}
