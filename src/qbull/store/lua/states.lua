-- states: the states of these jobs, as letters.
-- KEYS  base
-- FLAGS no-writes
-- NAMES index
-- ARGV  … id
-- GIVES for each the first letter of its place in the index, "-" if it is not in this partition
local letters = {}
for from = rest, #ARGV, 1000 do
  local found = redis.call('HMGET', index, unpack(ARGV, from, math.min(from + 999, #ARGV)))
  for i = 1, #found do letters[#letters + 1] = found[i] and string.sub(found[i], 1, 1) or '-' end
end
return table.concat(letters)
