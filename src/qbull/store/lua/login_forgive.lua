-- login_forgive: forget the failed attempts of an address after a successful login.
-- KEYS  base
-- FLAGS allow-oom
-- ARGV  address
redis.call('DEL', base .. 'tries:' .. address)
return 1
