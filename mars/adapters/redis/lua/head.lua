#!lua flags=no-writes
-- head, version 9: one consistent look at a task.
--
-- KEYS   1 meta   2 offsets   3 marks   4 idle   5 seq   6 bytes   7 ends   8 taken (see append.lua)
-- ARGV   none
-- Answers   nil where there is no such task, else
--   epoch, version, active (1 or 0), [lane, offset ...], [lane, mark ...], [leased lane ...],
--   seq, this server's clock in ms, bytes, [lane, end ...], leader epoch,
--   [lane, when its last rows were taken ...], [restored mark, when it was taken],
--   when this life of the task was begun, and on which server (see initialise.lua)

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'active', 'leader', 'versions')
if not meta[1] then return false end
local restored = redis.call('HMGET', KEYS[1], 'mark', 'taken', 'born', 'begun_on')

local now = redis.call('TIME')
local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local leases, leased = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #leases, 2 do
  if tonumber(leases[i + 1]) > now_ms then leased[#leased + 1] = leases[i] end
end
return {
  meta[1],
  meta[5] and string.match(meta[5], '%d+$') or meta[2],
  meta[3],
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  leased,
  redis.call('GET', KEYS[5]) or '0',
  string.format('%.0f', now_ms),
  redis.call('GET', KEYS[6]) or '0',
  redis.call('HGETALL', KEYS[7]),
  meta[4] or '0',
  redis.call('HGETALL', KEYS[8]),
  restored[1] and { restored[1], restored[2] } or {},
  restored[3] or '',
  restored[4] or '',
}
