-- report: reports for PostgreSQL, written by its maintenance. A job's record can ask for a report of its end,
-- or of all its states.
-- `reports` has two kinds of entries. For up to 50 jobs: <letter><id> and, if all states are asked for, the
-- current record:
--   w waiting, d delayed, f failed, x cancelled, - removed, a active (added by the worker), c completed after
--   a crash of its worker
-- For other completed jobs, which are the majority: C<number>, then their ids, one per line, followed by
-- their endings as they are stored; or E<number> and only the ids, if only the end is asked for.
-- If nobody reads the reports, they are kept up to a limit.
-- NEEDS base
-- USES  record_layout record msgpack
-- COMMIT write_reports
local REPORTS = 1000000
local LARGE = 2000
local told, told_n = {}, 0
local done_ids, done_endings, ended_ids = {}, {}, {}

-- The number of bytes of the ending behind a record. The length is stored last.
local function ending_size(finished)
  local a, b, c, d = string.byte(finished, -ENDING_LENGTH_BYTES, -1)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- The ending with its length. A large one goes without its result, which these reports do not need.
local function ending_of(finished)
  local size = ending_size(finished)
  if size <= LARGE then return string.sub(finished, -ENDING_LENGTH_BYTES - size) end
  local ending = string.sub(finished, -ENDING_LENGTH_BYTES - size, -ENDING_LENGTH_BYTES - 1)
  ending = without_value(ending, 1, RESULT_VALUE)
  local n = #ending
  local high, low = math.floor(n / 65536), n % 65536
  return ending .. string.char(math.floor(high / 256), high % 256, math.floor(low / 256), low % 256)
end

-- The record for a report. A large one goes without its payload.
local function in_short(letter, record)
  if #record <= LARGE then return record end
  if not string.find('cfx', letter, 1, true) then
    return without_value(record, body_at(record), PAYLOAD_VALUE)
  end
  local without_ending = string.sub(record, 1, -ENDING_LENGTH_BYTES - 1 - ending_size(record))
  return without_value(without_ending, body_at(record), PAYLOAD_VALUE) .. ending_of(record)
end

-- Report a job if its record asks for it. `asked` is the flag that it needs (core/record.py), REPORT_END by
-- default.
local function report(letter, id, record, asked)
  local flags = (string.byte(record, FLAGS_AT) or 0) % (2 * REPORT_ALL_FLAG)
  if flags < (asked or REPORT_END_FLAG) or not is_record(record) then return end
  local text = flags >= REPORT_ALL_FLAG and in_short(letter, record) or ''
  told[told_n + 1], told[told_n + 2] = letter .. id, text
  told_n = told_n + 2
end

-- Report a completed job whose record has one of the report flags.
local function report_done(id, finished)
  local flags = string.byte(finished, FLAGS_AT) % (2 * REPORT_ALL_FLAG)
  if flags >= REPORT_ALL_FLAG and crashes_of(finished) > 0 then
    report('c', id, finished)
  elseif flags >= REPORT_ALL_FLAG then
    local n = #done_ids + 1
    done_ids[n], done_endings[n] = id, ending_of(finished)
  end
  if flags % REPORT_ALL_FLAG >= REPORT_END_FLAG then ended_ids[#ended_ids + 1] = id end
end

local function add_report(...)
  redis.call('XADD', base .. 'reports', 'MAXLEN', '~', REPORTS, '*', ...)
end

local function write_reports()
  for from = 1, told_n, 100 do add_report(unpack(told, from, math.min(from + 99, told_n))) end
  if done_ids[1] then
    add_report('C' .. #done_ids, table.concat(done_ids, '\n') .. '\n' .. table.concat(done_endings))
  end
  if ended_ids[1] then add_report('E' .. #ended_ids, table.concat(ended_ids, '\n')) end
end
