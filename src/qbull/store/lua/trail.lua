-- trail: write down what was done through the API; what is too old or too many goes.
-- KEYS  base
-- NAMES trail
-- USES  clock
-- FLAGS allow-oom
-- ARGV  most:int age_ms:int  … entry
for i = rest, #ARGV do redis.call('XADD', trail, '*', 'e', ARGV[i]) end
redis.call('XTRIM', trail, 'MAXLEN', most)
redis.call('XTRIM', trail, 'MINID', string.format('%.0f', now_ms - age_ms))
redis.call('PEXPIRE', trail, age_ms)
return 1
