-- consumer_groups: create the consumer groups of these ready streams, also of empty ones. It is a script for
-- the same reason as register.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  … level
for i = rest, #ARGV do
  local made = redis.pcall('XGROUP', 'CREATE', base .. 'ready:' .. ARGV[i], 'workers', '0', 'MKSTREAM')
  if made.err and not string.find(made.err, 'BUSYGROUP', 1, true) then return made end
end
return 1
