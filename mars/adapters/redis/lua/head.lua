#!lua flags=no-writes
-- head, version 11: one consistent look at a task, and at what its followed logs hold more.
--
-- KEYS   1 meta   2 offsets   3 marks   4 idle   5 seq   6 bytes   7 ends   8 taken   9 rows (see
--        append.lua)
--        10, 13 ...   log of a bucket   11, 14 ...   sizes of that log   12, 15 ...   merged of that
--        log (see merge.lua)
-- ARGV   1 of how many batches a log is brought at the most   2 of how many bytes all logs are
--        3, 4 ...  up to which seq each log has been read
-- Answers   nil where there is no such task, else
--   epoch, version, active (1 or 0), [lane, offset ...], [lane, mark ...], [leased lane ...],
--   seq, this server's clock in ms, bytes, [lane, end ...], leader epoch,
--   [lane, when its last rows were taken ...], [restored mark, when it was taken],
--   when this life of the task was begun, and on which server (see initialise.lua),
--   [lane or <offset>:<lane>, rows ...],
--   and of each log nil, where it has nothing new or too much, or
--   [seq, header, states ...], [merged entry ...], how many entries are noted, how many are there

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version', 'active', 'leader', 'versions')
if not meta[1] then return false end
local restored = redis.call('HMGET', KEYS[1], 'mark', 'taken', 'born', 'begun_on')

local now = redis.call('TIME')
local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local leases, leased = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #leases, 2 do
  if tonumber(leases[i + 1]) > now_ms then leased[#leased + 1] = leases[i] end
end

local seq = redis.call('GET', KEYS[5]) or '0'
local last, room = tonumber(seq), tonumber(ARGV[2] or 0)

-- What a log holds from `first` on, if it fits; its entries are counted before they are read.
local function news(log, sizes, merged, first)
  if first > last or last - first >= tonumber(ARGV[1]) then return false end
  local seqs = {}
  for number = first, last do seqs[#seqs + 1] = string.format('%.0f', number) end
  for _, size in ipairs(redis.call('HMGET', sizes, unpack(seqs))) do
    room = room - (tonumber(size or 0))
  end
  if room < 0 then return false end
  local found = {}
  for _, entry in ipairs(redis.call('XRANGE', log, seqs[1] .. '-0', seq .. '-0')) do
    found[#found + 1] = string.match(entry[1], '^%d+')
    found[#found + 1], found[#found + 2] = entry[2][2], entry[2][4]
  end
  return {
    found,
    redis.call('ZRANGEBYSCORE', merged, seqs[1], seq),
    redis.call('HLEN', sizes),
    redis.call('XLEN', log) + redis.call('ZCARD', merged),
  }
end

local logs = {}
for i = 3, #ARGV do
  local at = 3 * i + 1
  logs[#logs + 1] = news(KEYS[at], KEYS[at + 1], KEYS[at + 2], tonumber(ARGV[i]) + 1)
end

return {
  meta[1],
  meta[5] and string.match(meta[5], '%d+$') or meta[2],
  meta[3],
  redis.call('HGETALL', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  leased,
  seq,
  string.format('%.0f', now_ms),
  redis.call('GET', KEYS[6]) or '0',
  redis.call('HGETALL', KEYS[7]),
  meta[4] or '0',
  redis.call('HGETALL', KEYS[8]),
  restored[1] and { restored[1], restored[2] } or {},
  restored[3] or '',
  restored[4] or '',
  redis.call('HGETALL', KEYS[9]),
  logs,
}
