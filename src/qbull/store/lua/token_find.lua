-- token_find: what is known of a token, and what time it is.
-- KEYS  base
-- FLAGS no-writes
-- NAMES tokens
-- USES  clock
-- ARGV  id
return {redis.call('HGET', tokens, id) or '', now_ms}
