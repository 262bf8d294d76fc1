-- report: what the maintenance is to tell PostgreSQL, of jobs whose record asks for it: of their end, or of
-- all they go through.
-- `reports` has two kinds of entries. Of up to 50 jobs: <letter><id> and, where all is asked for, the record
-- as it is then:
--   w  waiting      d  delayed      f  failed      x  cancelled      -  removed      a  active (by the
--   worker)
-- Of jobs that are done, which is what most have to say: C<how many>, their ids, a line each, and behind
-- these their endings as
-- they are sealed; E<how many> and the ids alone, where only the end is asked for.
-- While nobody reads them they are kept, but not without bound.
-- NEEDS base
-- USES  record_layout record msgpack
-- COMMIT write_reports
local REPORTS = 1000000
local LARGE = 2000
local told, told_n = {}, 0
local done_ids, done_endings, ended_ids = {}, {}, {}

-- The bytes of the ending behind a record; its length comes last.
local function seal_size(sealed)
  local a, b, c, d = string.byte(sealed, -ENDING_LENGTH_BYTES, -1)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- A sealed ending; a large one goes without its result, nobody asks for that here.
local function ending_of(sealed)
  local size = seal_size(sealed)
  if size <= LARGE then return string.sub(sealed, -ENDING_LENGTH_BYTES - size) end
  local ending = without_value(string.sub(sealed, -ENDING_LENGTH_BYTES - size, -ENDING_LENGTH_BYTES - 1), 1, RESULT_VALUE)
  local n = #ending
  return ending .. string.char(math.floor(n / 16777216), math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- A large record goes without its payload.
local function in_short(letter, record)
  if #record <= LARGE then return record end
  if not string.find('fx', letter, 1, true) then return without_value(record, body_at(record), PAYLOAD_VALUE) end
  local unsealed = string.sub(record, 1, -ENDING_LENGTH_BYTES - 1 - seal_size(record))
  return without_value(unsealed, body_at(record), PAYLOAD_VALUE) .. ending_of(record)
end

-- `asked` is how much a record must ask for (core/record.py): REPORT_END, where nothing is said.
local function report(letter, id, record, asked)
  local flags = (string.byte(record, FLAGS_AT) or 0) % (2 * REPORT_ALL_FLAG)
  if flags < (asked or REPORT_END_FLAG) or not is_record(record) then return end
  told[told_n + 1], told[told_n + 2] = letter .. id, flags >= REPORT_ALL_FLAG and in_short(letter, record) or ''
  told_n = told_n + 2
end

-- The same of a job that is done and asks for something.
local function report_done(id, sealed)
  local flags = string.byte(sealed, FLAGS_AT) % (2 * REPORT_ALL_FLAG)
  if flags >= REPORT_ALL_FLAG then
    local n = #done_ids + 1
    done_ids[n], done_endings[n] = id, ending_of(sealed)
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
