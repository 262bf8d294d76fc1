-- reports_take: delete the reports that were written to PostgreSQL, and read the next ones.
-- KEYS  base
-- NAMES reports
-- FLAGS allow-oom
-- ARGV  most:int  … entry
-- GIVES up to `most` entries, and how many there are in total
if #ARGV >= rest then redis.call('XDEL', reports, unpack(ARGV, rest)) end
return {redis.call('XRANGE', reports, '-', '+', 'COUNT', most), redis.call('XLEN', reports)}
