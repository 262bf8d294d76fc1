-- flow_outbox: what is to be brought to other partitions, for the one courier that has the claim. It has it
-- for a while, and from the others
-- as soon as it does nothing with it: several would do no harm, but the same work.
-- KEYS  base
-- NAMES outgoing courier
-- FLAGS allow-oom
-- ARGV  who hold_ms:int most:int from
-- GIVES up to so many entries; "busy" where another one has the claim
local entries = redis.call('XRANGE', outgoing, from, '+', 'COUNT', most)
if #entries == 0 then return entries end
local holder = redis.call('GET', courier)
if holder and holder ~= who then return 'busy' end
redis.call('SET', courier, who, 'PX', hold_ms)
return entries
