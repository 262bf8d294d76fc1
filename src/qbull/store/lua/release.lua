-- release: a worker gives deliveries back that it will not run to their end now. Nothing is counted against them.
-- KEYS  base
-- NAMES index bands
-- USES  clock stamp record index tell ready delivery
-- FLAGS allow-oom
-- ARGV  … place
-- GIVES how many jobs went back
local jobs = 0
for i = rest, #ARGV do
  local band, entry = string.sub(ARGV[i], 1, 1), string.sub(ARGV[i], 2)
  local mine = unsettled(band, entry)
  if #mine > 0 then
    add_ready('0', mine, entry)
    leave(band, entry)
    jobs = jobs + #mine / 2
  end
end
write_leaving()
write_index()
return jobs
