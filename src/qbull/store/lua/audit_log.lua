-- audit_log: log what was done through the API, and delete entries that are too old or too many.
-- KEYS  base
-- USES  clock
-- FLAGS allow-oom
-- ARGV  name most:int age_ms:int  … entry
--       name: the stream, trail or strangers
local stream = base .. name
for i = rest, #ARGV do redis.call('XADD', stream, '*', 'e', ARGV[i]) end
redis.call('XTRIM', stream, 'MAXLEN', most)
redis.call('XTRIM', stream, 'MINID', string.format('%.0f', now_ms - age_ms))
redis.call('PEXPIRE', stream, age_ms)
return 1
