-- idempotent: a call that has changed something and is sent again after a lost reply gets the answer that it
-- had: words.
-- NEEDS base
local function answered(token) return redis.call('GET', base .. 'once:' .. token) end

local function answer(token, changed, words)
  local text = table.concat(words, ' ')
  if changed then redis.call('SET', base .. 'once:' .. token, text, 'EX', 60) end
  return text
end
