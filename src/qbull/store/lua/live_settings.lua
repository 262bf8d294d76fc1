-- live_settings: what has been changed of a queue at run time.
-- KEYS  base
-- FLAGS no-writes
-- NAMES live hold
-- GIVES setting, when and by whom and value …; the milliseconds for which nothing may begin; why
return {redis.call('HGETALL', live), math.max(redis.call('PTTL', hold), 0), redis.call('GET', hold) or ''}
