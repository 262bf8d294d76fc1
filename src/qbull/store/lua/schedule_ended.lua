-- schedule_ended: note how the runs of schedules have ended. A run that is no longer among the newest is left
-- out. May be sent twice.
-- KEYS  base
-- USES  schedule_runs
-- FLAGS allow-oom
-- ARGV  … name id outcome duration_ms
--       outcome: the letter of its state (lib/index.lua)
-- GIVES how many were noted
local noted = 0
for i = rest, #ARGV, 4 do
  local state, id = base .. 'schedule:' .. ARGV[i], ARGV[i + 1]
  local lines, found = runs_of(state), false
  for n, line in ipairs(lines) do
    local at_ms, of = string.match(line, '^(%d+) (%S+)')
    if of == id then
      lines[n] = table.concat({at_ms, id, ARGV[i + 2], ARGV[i + 3]}, ' ')
      found = true
    end
  end
  if found then
    redis.call('HSET', state, 'runs', table.concat(lines, '\n'))
    noted = noted + 1
  end
end
return noted
