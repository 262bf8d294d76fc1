-- states: which of these jobs the partition knows, and where they are.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index
-- ARGV  … id
-- GIVES a letter for each: the first one of its place in the index, "-" for one that is not here
local letters = {}
for from = rest, #ARGV, 1000 do
  local found = redis.call('HMGET', index, unpack(ARGV, from, math.min(from + 999, #ARGV)))
  for i = 1, #found do letters[#letters + 1] = found[i] and string.sub(found[i], 1, 1) or '-' end
end
return table.concat(letters)
