-- live_settings: the settings of a queue that were changed at run time.
-- KEYS  base
-- FLAGS no-writes
-- NAMES live hold
-- GIVES setting, when and by whom and value …; the milliseconds for which no job may start; why
return {redis.call('HGETALL', live), math.max(redis.call('PTTL', hold), 0), redis.call('GET', hold) or ''}
