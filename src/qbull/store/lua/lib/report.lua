-- report: what the maintenance is to tell PostgreSQL, of jobs whose record asks for it: of their end, or of all they go through.
-- `reports` has two kinds of entries. Of up to 50 jobs: <letter><id> and, where all is asked for, the record as it is then:
--   w  waiting      d  delayed      f  failed      x  cancelled      -  removed      a  active (by the worker)
-- Of jobs that are done, which is what most have to say: C<how many>, their ids, a line each, and behind these their endings as
-- they are sealed; E<how many> and the ids alone, where only the end is asked for.
-- While nobody reads them they are kept, but not without bound.
-- NEEDS base
-- USES  record
-- COMMIT write_reports
local REPORTS = 1000000
local LARGE = 2000
local told, told_n = {}, 0
local done_ids, done_endings, ended_ids = {}, {}, {}

-- Where the msgpack value that begins at a position ends, of the kinds that bodies and endings begin with.
local function behind_value(s, at)
  local kind = string.byte(s, at) or 0xc0 -- it may have been cut off
  local after = at + 1
  local function length(bytes)
    local n = 0
    for i = 0, bytes - 1 do n = n * 256 + (string.byte(s, after + i) or 0) end
    return after + bytes + n
  end
  if kind >= 0xa0 and kind <= 0xbf then return after + kind - 0xa0 end -- a short text
  if kind == 0xd9 or kind == 0xc4 then return length(1) end -- texts and bytes
  if kind == 0xda or kind == 0xc5 then return length(2) end
  if kind == 0xdb or kind == 0xc6 then return length(4) end
  if kind == 0xcc or kind == 0xd0 then return after + 1 end -- numbers
  if kind == 0xcd or kind == 0xd1 then return after + 2 end
  if kind == 0xca or kind == 0xce or kind == 0xd2 then return after + 4 end
  if kind == 0xcb or kind == 0xcf or kind == 0xd3 then return after + 8 end
  return after
end

-- The array that begins at a position with the n-th of its values made empty, where that is bytes.
local function without_value(s, at, n)
  local from = at + 1
  for _ = 2, n do from = behind_value(s, from) end
  local kind = string.byte(s, from)
  if kind < 0xc4 or kind > 0xc6 then return s end
  return string.sub(s, 1, from - 1) .. '\196\0' .. string.sub(s, behind_value(s, from))
end

local function seal_size(sealed)
  local a, b, c, d = string.byte(sealed, -4, -1)
  return ((a * 256 + b) * 256 + c) * 256 + d
end

-- A sealed ending; a large one goes without its result, nobody asks for that here.
local function ending_of(sealed)
  local size = seal_size(sealed)
  if size <= LARGE then return string.sub(sealed, -4 - size) end
  local ending = without_value(string.sub(sealed, -4 - size, -5), 1, 4)
  local n = #ending
  return ending .. string.char(math.floor(n / 16777216), math.floor(n / 65536) % 256, math.floor(n / 256) % 256, n % 256)
end

-- A large record goes without its payload.
local function in_short(letter, record)
  if #record <= LARGE then return record end
  local body = 12 + string.byte(record, 11)
  if not string.find('fx', letter, 1, true) then return without_value(record, body, 2) end
  return without_value(string.sub(record, 1, -5 - seal_size(record)), body, 2) .. ending_of(record)
end

-- `asked` is how much a record must ask for (core/record.py): REPORT_END, where nothing is said.
local function report(letter, id, record, asked)
  local flags = (string.byte(record, 3) or 0) % 8
  if flags < (asked or 2) or not is_record(record) then return end
  told[told_n + 1], told[told_n + 2] = letter .. id, flags >= 4 and in_short(letter, record) or ''
  told_n = told_n + 2
end

-- The same of a job that is done and asks for something.
local function report_done(id, sealed)
  local flags = string.byte(sealed, 3) % 8
  if flags >= 4 then
    local n = #done_ids + 1
    done_ids[n], done_endings[n] = id, ending_of(sealed)
  end
  if flags % 4 >= 2 then ended_ids[#ended_ids + 1] = id end
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
