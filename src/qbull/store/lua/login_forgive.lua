-- login_forgive: a password was right: what its address has tried before does not count any more.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  address
redis.call('DEL', base .. 'tries:' .. address)
return 1
