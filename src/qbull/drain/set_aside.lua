-- set_aside: take messages of another library out of where they wait, and keep them apart until they were enqueued here.
-- KEYS[1]  the hash in which they are stored apart, on the old server
-- ARGV     kind collection index  and for each: name value stored leftover_key
--          kind: "tail" or "head" of a list, "member" of a sorted set, "field" of a hash whose order is in `index`
--          leftover_key: a name that only this message has and that goes with it; empty where there is none
-- GIVES    for each 1, or 0 where an old worker has taken it meanwhile
-- Sent without the first line that newer servers read flags from: the old server may be an old one.
local kind, collection, index = ARGV[1], ARGV[2], ARGV[3]
local taken = {}
for i = 4, #ARGV, 4 do
  local name, value, stored, leftover_key = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
  local found
  if kind == 'tail' then
    found = redis.call('LREM', collection, -1, value)
  elseif kind == 'head' then
    found = redis.call('LREM', collection, 1, value)
  elseif kind == 'member' then
    found = redis.call('ZREM', collection, value)
  else
    found = redis.call('HDEL', collection, value)
    redis.call('ZREM', index, value)
  end
  if found > 0 then
    redis.call('HSET', KEYS[1], name, stored)
    if leftover_key ~= '' then redis.call('DEL', leftover_key) end
  end
  taken[#taken + 1] = redis.call('HEXISTS', KEYS[1], name)
end
return taken
