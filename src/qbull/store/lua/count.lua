-- count: the number of jobs in each state. The server keeps each number as a length, so the cost does not
-- depend on the size. A train counts as one active job; its other jobs count as waiting.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index delayed stats kept limited
-- USES  record_layout used_levels
-- GIVES waiting active delayed completed failed cancelled, how many are behind others of their lane (in
--       trains too), how many entries are in front of the workers, the oldest waiting entry, the totals as
--       name, number …, how many wait for a shared limit or for tokens of a host
local ended = redis.call('HMGET', kept, 'completed', 'failed', 'cancelled', 'lanes')
local completed, failed, cancelled = tonumber(ended[1] or 0), tonumber(ended[2] or 0), tonumber(ended[3] or 0)
local postponed, parked = redis.call('ZCARD', delayed), redis.call('ZCOUNT', delayed, PARKED_DUE, PARKED_DUE)
local in_lanes = tonumber(ended[4] or 0)
local jobs = redis.call('HLEN', index) - redis.call('HEXISTS', index, '\n')
local in_streams = jobs - completed - failed - cancelled - postponed - in_lanes
local active, entries, oldest = 0, 0, ''
local streams = used_levels()
for _, level in ipairs(streams) do
  local stream = base .. 'ready:' .. level
  local pending = redis.pcall('XPENDING', stream, 'workers')
  entries = entries + redis.call('XLEN', stream)
  local after = '-'
  if not pending.err then
    active = active + pending[1]
    local groups = redis.call('XINFO', 'GROUPS', stream)
    for _, group in ipairs(groups) do
      for i = 1, #group, 2 do
        if group[i] == 'last-delivered-id' then after = '(' .. group[i + 1] end
      end
    end
  end
  local head = redis.call('XRANGE', stream, after, '+', 'COUNT', 1)[1]
  local head_ms = head and tonumber(string.match(head[1], '^%d+'))
  if head and (oldest == '' or head_ms < tonumber(string.match(oldest, '^%d+'))) then
    oldest = head[1]
  end
end
local for_limits = 0
local function count_parked(need) for_limits = for_limits + redis.call('ZCARD', base .. 'parked:' .. need) end
for _, need in ipairs(redis.call('SMEMBERS', limited)) do count_parked(need) end
for _, need in ipairs(parked > 0 and redis.call('SMEMBERS', base .. 'parked') or {}) do
  if string.find(need, '^resource ') then count_parked(need) end
end
return {
  in_streams - active + in_lanes + parked, active, postponed - parked, completed, failed, cancelled,
  in_lanes, entries, oldest, redis.call('HGETALL', stats), for_limits,
}
