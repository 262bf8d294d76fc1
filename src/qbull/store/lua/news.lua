-- news: the newest jobs that have finished after a moment, the oldest of them first. A bounded look: what does not fit is left out.
-- KEYS  base
-- FLAGS no-writes
-- USES  clock
-- ARGV  most:int bytes:int completed_after failed_after cancelled_after
--       most: entries of each stream; bytes: of records that are read for each; …_after: the last entry that was seen
-- GIVES now in ms; 1 where some were left out; and of each: state, entry, id, the head of its record, the ending of one that failed
local HEAD = 160
local answer, cut = {now_ms, 0}, 0
local since = {completed = completed_after, failed = failed_after, cancelled = cancelled_after}
for _, state in ipairs({'completed', 'failed', 'cancelled'}) do
  local entries, upto, size, more = {}, '+', 0, true
  while more do
    local found = redis.call('XREVRANGE', base .. state, upto, '(' .. since[state], 'COUNT', 1)[1]
    if not found then
      more = false
    elseif #entries >= most or size > bytes then
      more, cut = false, 1
    else
      entries[#entries + 1] = found
      upto = '(' .. found[1]
      for i = 2, #found[2], 2 do size = size + #found[2][i] end
    end
  end
  for at = #entries, 1, -1 do
    local entry, fields = entries[at][1], entries[at][2]
    for i = 1, #fields, 2 do
      local sealed, ending, n = fields[i + 1], '', #answer
      if state == 'failed' and #sealed > 4 then
        local a, b, c, d = string.byte(sealed, -4, -1)
        ending = string.sub(sealed, -4 - (((a * 256 + b) * 256 + c) * 256 + d), -1)
      end
      answer[n + 1], answer[n + 2], answer[n + 3] = state, entry, fields[i]
      answer[n + 4], answer[n + 5] = string.sub(sealed, 1, HEAD), ending
    end
  end
end
answer[2] = cut
return answer
