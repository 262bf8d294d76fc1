-- stack_ask: ask the worker that runs a job where its task is, or read the answer. Asked until it is there.
-- KEYS  base
-- NAMES stacks
-- USES  tell
-- FLAGS allow-oom
-- ARGV  id token seconds:int
-- GIVES the answer; false as long as there is none
local answer = redis.call('GET', base .. 'stack:' .. token)
if answer then return answer end
redis.call('HSET', stacks, id, token)
redis.call('EXPIRE', stacks, seconds)
tell('bell', 'stack')
return false
