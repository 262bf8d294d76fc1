-- new_job: add a new job that runs now or later, and note when it expires.
--   when: milliseconds from now, or @ and a time in milliseconds. If the job expires, a space and its expiry
--   follow in the same form.
-- NEEDS base
-- NAMES delayed
-- USES  clock stamp record_layout report index lane due
-- The time that a text stands for. Delays count from the end of this millisecond.
local function moment_of(text)
  return string.sub(text, 1, 1) == '@' and tonumber(string.sub(text, 2)) or next_ms + tonumber(text)
end

local function expires_at(when)
  local text = string.match(when, ' (.+)$')
  return text and moment_of(text)
end

local function add_job(id, when, record)
  local ends = expires_at(when)
  if ends then
    watch(base .. 'expiring', id, ends)
    when = string.match(when, '^%S+')
  end
  local due = when ~= '0' and moment_of(when)
  if due and due > next_ms then
    watch(delayed, id, due)
    put(id, 'd' .. stamped(record))
    report('d', id, record, REPORT_ALL_FLAG)
  else
    admit(id, record)
    report('w', id, record, REPORT_ALL_FLAG)
  end
end
