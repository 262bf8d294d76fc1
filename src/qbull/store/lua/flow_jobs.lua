-- flow_jobs: some jobs of a partition that belong to a flow: those that wait for others, and the newest that
-- have ended.
-- KEYS  base
-- FLAGS no-writes
-- NAMES delayed
-- USES  record_layout record
-- ARGV  most:int entries:int
--       most: number of waiting jobs; entries: of each stream of ended ones
-- GIVES id …
local found = redis.call('ZRANGE', delayed, NEVER_DUE, NEVER_DUE, 'BYSCORE', 'LIMIT', 0, most)
for _, state in ipairs({'completed', 'failed', 'cancelled'}) do
  for _, entry in ipairs(redis.call('XREVRANGE', base .. state, '+', '-', 'COUNT', entries)) do
    local fields = entry[2]
    for i = #fields - 1, 1, -2 do
      local record = fields[i + 1]
      local is_in_flow = is_record(record)
        and (has_flag(record, HAS_DEPENDENTS_FLAG) or has_flag(record, HAS_DEPENDENCIES_FLAG))
      if is_in_flow then found[#found + 1] = fields[i] end
    end
  end
end
return found
