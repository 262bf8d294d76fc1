-- pending: which worker a delivery belongs to. Its place alone does not tell: after a failover that has lost
-- a delivery, the new primary hands the same entry to another worker.
-- NEEDS base

local function is_pending_for(place, worker)
  local stream, entry = base .. 'ready:' .. string.sub(place, 1, 1), string.sub(place, 2)
  local pending = redis.pcall('XPENDING', stream, 'workers', entry, entry, 1, worker)
  return not pending.err and pending[1] ~= nil
end
