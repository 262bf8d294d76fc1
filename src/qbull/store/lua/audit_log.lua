-- audit_log: append entries to the audit log, and delete those that are too old or too many. Each entry is
-- numbered and carries the hash of the one before, so that a removed or changed one shows.
-- KEYS  base
-- USES  clock idempotent sha256
-- FLAGS allow-oom
-- ARGV  name token most:int age_ms:int  … entry digest
--       name: the stream; digest: the SHA-256 of the entry
-- GIVES the number of the last entry
local before = answered(token)
if before then return before end

local stream, chain = base .. name, base .. name .. ':chain'
local there = redis.call('HMGET', chain, 'number', 'hash', 'oldest', 'unchained')
local number, hash, oldest = tonumber(there[1] or 0), there[2] or '', tonumber(there[3] or 1)
local unchained = tonumber(there[4] or redis.call('XLEN', stream)) -- entries of an earlier version
for i = rest, #ARGV, 2 do
  number = number + 1
  -- As link_hash in core/audit_chain.py.
  local link = sha256(hash .. '\n' .. number .. '\n' .. ARGV[i + 1])
  redis.call('XADD', stream, '*', 'e', ARGV[i], 'n', number, 'p', hash, 'h', link)
  hash = link
end
-- The number of the oldest entry follows from the entries deleted here, so one that somebody removed shows.
local deleted = redis.call('XTRIM', stream, 'MAXLEN', most)
  + redis.call('XTRIM', stream, 'MINID', string.format('%.0f', now_ms - age_ms))
local earlier = math.min(unchained, deleted)
redis.call('HSET', chain, 'number', number, 'hash', hash, 'oldest', oldest + deleted - earlier,
  'unchained', unchained - earlier)
redis.call('PEXPIRE', stream, age_ms)
redis.call('PEXPIRE', chain, age_ms)
return answer(token, true, {number})
