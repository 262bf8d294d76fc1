-- drain_status: the contents of a partition, as numbers that the server keeps.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed lanes bands held kept schedules reports outgoing stats
-- USES  record_layout
-- GIVES its mark; entries in front of the workers; jobs behind others; delayed ones; lanes; held lanes; all
--       jobs, finished ones too; completed; failed; cancelled; schedules; reports that nobody has taken;
--       messages in the flow outbox; the totals as name, number …
local entries = redis.call('XLEN', base .. 'ready:0') + redis.call('XLEN', base .. 'ready:5')
  + redis.call('XLEN', base .. 'ready:' .. UNPARKED_BAND)
for _, level in ipairs(redis.call('SMEMBERS', bands)) do
  entries = entries + redis.call('XLEN', base .. 'ready:' .. level)
end
local counted = redis.call('HMGET', kept, 'lanes', 'completed', 'failed', 'cancelled')
return {
  redis.call('HGET', index, '\n') or '',
  entries,
  tonumber(counted[1] or 0),
  redis.call('ZCARD', delayed),
  redis.call('HLEN', lanes),
  redis.call('SCARD', held),
  redis.call('HLEN', index) - redis.call('HEXISTS', index, '\n'),
  tonumber(counted[2] or 0),
  tonumber(counted[3] or 0),
  tonumber(counted[4] or 0),
  redis.call('ZCARD', schedules),
  redis.call('XLEN', reports),
  redis.call('XLEN', outgoing),
  redis.call('HGETALL', stats),
}
