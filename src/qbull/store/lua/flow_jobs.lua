-- flow_jobs: some jobs of a partition that are of a flow: those that wait for others, and of those that ended the newest. A bounded look.
-- KEYS  base
-- FLAGS no-writes
-- NAMES delayed
-- USES  record
-- ARGV  most:int entries:int
--       most: jobs that wait; entries: of each stream of ended ones
-- GIVES id …
local FAR = '253402300799000'
local found = redis.call('ZRANGE', delayed, FAR, FAR, 'BYSCORE', 'LIMIT', 0, most)
for _, state in ipairs({'completed', 'failed', 'cancelled'}) do
  for _, entry in ipairs(redis.call('XREVRANGE', base .. state, '+', '-', 'COUNT', entries)) do
    local fields = entry[2]
    for i = #fields - 1, 1, -2 do
      local record = fields[i + 1]
      if is_record(record) and string.byte(record, 3) % 32 >= 8 then found[#found + 1] = fields[i] end
    end
  end
end
return found
