-- token_swap: replace the stored data of a token, unless somebody has changed or revoked it in the meantime.
-- KEYS  base
-- NAMES tokens
-- FLAGS allow-oom
-- ARGV  id before after
-- GIVES 1 if it is there now, also if the same call was sent before; 0 otherwise
local there = redis.call('HGET', tokens, id)
if there == after then return 1 end
if there ~= before then return 0 end
redis.call('HSET', tokens, id, after)
return 1
