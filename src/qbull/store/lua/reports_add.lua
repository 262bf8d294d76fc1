-- reports_add: report something to PostgreSQL that no script has done itself. A full server accepts it, like
-- all reports.
-- KEYS  base
-- USES  report
-- FLAGS allow-oom
-- ARGV  … name what
--       name: a letter and the id, as in lib/report.lua
for from = 1, #ARGV, 100 do add_report(unpack(ARGV, from, math.min(from + 99, #ARGV))) end
return 1
