-- reports_take: drop those that have been told, and give the next ones.
-- KEYS  base
-- NAMES reports
-- FLAGS allow-oom
-- ARGV  most:int  … entry
-- GIVES up to so many entries, and how many there are in all
if #ARGV >= rest then redis.call('XDEL', reports, unpack(ARGV, rest)) end
return {redis.call('XRANGE', reports, '-', '+', 'COUNT', most), redis.call('XLEN', reports)}
