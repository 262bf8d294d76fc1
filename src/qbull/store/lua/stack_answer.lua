-- stack_answer: answer a question of stack_ask.
-- KEYS  base
-- NAMES stacks
-- FLAGS allow-oom
-- ARGV  id token seconds:int content
redis.call('SET', base .. 'stack:' .. token, content, 'EX', seconds)
if redis.call('HGET', stacks, id) == token then redis.call('HDEL', stacks, id) end
return 1
