-- idempotent: a call that is sent again after a lost reply gets the answer of the first one.
-- NEEDS base
local function answered(token) return redis.call('GET', base .. 'once:' .. token) end

local function answer(token, changed, words)
  local text = table.concat(words, ' ')
  if changed then redis.call('SET', base .. 'once:' .. token, text, 'EX', 60) end
  return text
end
