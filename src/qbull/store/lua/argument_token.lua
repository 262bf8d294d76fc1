-- argument_token: the token in the names of a queue's arguments that are stored elsewhere. The first caller
-- decides.
-- KEYS  settings
-- FLAGS allow-oom
-- ARGV  token
-- GIVES the token of the queue
local known = redis.call('HGET', settings, 'arguments')
if known then return known end
redis.call('HSET', settings, 'arguments', token)
return token
