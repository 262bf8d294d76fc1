-- limited_heads: the next jobs that wait for a shared limit, in the order in which they should start.
-- KEYS  base
-- FLAGS no-writes
-- USES  index
-- ARGV  most:int  … need
-- GIVES for each need: place in the order, id and record of each of up to `most` jobs, flat
local found = {}
for i = rest, #ARGV do
  local flat = redis.call('ZRANGE', base .. 'parked:' .. ARGV[i], 0, most - 1, 'WITHSCORES')
  local ids, heads = {}, {}
  for n = 1, #flat, 2 do ids[#ids + 1] = flat[n] end
  for n, record in ipairs(records_of(ids)) do
    heads[#heads + 1] = flat[2 * n]
    heads[#heads + 1] = ids[n]
    heads[#heads + 1] = record
  end
  found[#found + 1] = heads
end
return found
