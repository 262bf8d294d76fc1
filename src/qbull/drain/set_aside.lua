-- set_aside: take messages of another library from their queue, and keep them until they are enqueued here.
-- KEYS[1]  the hash in which they are stored apart, on the old server
-- ARGV     kind collection index  and for each: name value stored leftover_key
--          kind: "tail" or "head" of a list, "member" of a sorted set,
--                "field" of a hash with its order in `index`
--          leftover_key: a key of this message alone, which is deleted with it; empty if there is none
-- GIVES    for each 1, or 0 if an old worker has taken it meanwhile
-- Sent without the shebang line of newer servers: the old server may not know it.
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
