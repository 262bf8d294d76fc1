-- finished_since: jobs that have finished since a moment, the oldest first. The size of the answer is
-- limited: other jobs are left out, or left to the next call.
-- KEYS  base
-- FLAGS no-writes
-- USES  clock record_layout
-- ARGV  most:int bytes:int forward:int completed_after failed_after cancelled_after
--       forward: 1 to start with the oldest, so that none is left out; most: entries of each stream; bytes:
--       of records that are read for each; …_after: the last entry that was seen
-- GIVES now in ms; the sum of 1, 2 and 4 for completed, failed and cancelled ones of which some were left
--       out; and for each: state, entry, id, the head of its record, the ending of one that failed
local HEAD = 160
local answer, cut = {now_ms, 0}, 0
local since = {completed = completed_after, failed = failed_after, cancelled = cancelled_after}
for kind, state in ipairs({'completed', 'failed', 'cancelled'}) do
  local entries, upto, size, more, from = {}, '+', 0, true, '(' .. since[state]
  while more do
    local found
    if forward == 1 then
      found = redis.call('XRANGE', base .. state, from, '+', 'COUNT', 1)[1]
    else
      found = redis.call('XREVRANGE', base .. state, upto, from, 'COUNT', 1)[1]
    end
    if not found then
      more = false
    elseif #entries >= most or size > bytes then
      more, cut = false, cut + 2 ^ (kind - 1)
    else
      if forward == 1 then
        table.insert(entries, 1, found)
        from = '(' .. found[1]
      else
        entries[#entries + 1] = found
        upto = '(' .. found[1]
      end
      for i = 2, #found[2], 2 do size = size + #found[2][i] end
    end
  end
  for at = #entries, 1, -1 do
    local entry, fields = entries[at][1], entries[at][2]
    for i = 1, #fields, 2 do
      local finished, ending, n = fields[i + 1], '', #answer
      if state == 'failed' and #finished > ENDING_LENGTH_BYTES then
        local a, b, c, d = string.byte(finished, -ENDING_LENGTH_BYTES, -1)
        ending = string.sub(finished, -ENDING_LENGTH_BYTES - (((a * 256 + b) * 256 + c) * 256 + d), -1)
      end
      answer[n + 1], answer[n + 2], answer[n + 3] = state, entry, fields[i]
      answer[n + 4], answer[n + 5] = string.sub(finished, 1, HEAD), ending
    end
  end
end
answer[2] = cut
return answer
