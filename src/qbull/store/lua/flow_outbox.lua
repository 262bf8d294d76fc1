-- flow_outbox: read the messages for other partitions, for the flow dispatcher that has the claim. The claim
-- expires if its owner does nothing with it. Several dispatchers would do no harm, but do the work twice.
-- KEYS  base
-- NAMES outgoing courier
-- FLAGS allow-oom
-- ARGV  who hold_ms:int most:int from
-- GIVES up to `most` entries; "busy" if another dispatcher has the claim
local entries = redis.call('XRANGE', outgoing, from, '+', 'COUNT', most)
if #entries == 0 then return entries end
local holder = redis.call('GET', courier)
if holder and holder ~= who then return 'busy' end
redis.call('SET', courier, who, 'PX', hold_ms)
return entries
