#!lua
-- append, version 8: take a batch of a task, or say why not (M3). All checks come before the first
-- write, so a refused batch changes nothing.
--
-- KEYS
--   1 meta      hash: epoch, version (the newest), versions (all, ascending, joined by commas), active
--               (1 or 0), buckets, leader (the highest leader epoch heard of, see heed.lua)
--   2 offsets   hash: lane -> next offset that the task has not yet seen
--   3 marks     hash: lane -> highest usable event time, ms
--   4 idle      hash: lane -> end of its idle lease, ms of this server's clock
--   5 seq       counter: number of the last entry
--   6 bytes     counter: size of all entries and bases of the task
--   7 bounds    hash: <version>:<lane> -> first offset of that version; absent means 0. A version ends
--               where the next one begins. Besides, lane -> that of the newest one, which is all that
--               an older release looks at
--   8 cuts      hash: lane -> offsets that no batch may straddle, ascending, joined by commas; a batch
--               of lanes that go on by themselves must have them all behind it
--   9 ends      hash: lane of a backfill -> offset at which it is finished
--   10 bell     sharded channel: rung after each entry
--   11 taken    hash: lane -> when rows with a usable event time were last taken, ms of this server's
--               clock. A key of its own, because older releases read all of the marks
--   12 rows     hash: lane -> how many rows that count lie below its next offset, counted from where
--               the version of that offset begins; -1 behind rows that are gone, as long as that is
--               not known. <offset>:<lane> -> the same below some offsets, as records tell.
--               v<version>:<lane> -> how many the version before that one has counted.
--               There is none of a task whose windows do not count rows
--   13, 15 ...  log of a bucket: stream; id <seq>-0, fields h (header), d (states)
--   14, 16 ...  sizes of that log: hash, seq -> bytes that the entry counts for
-- ARGV
--   1 store epoch     2 version     3 budget, bytes     4 bytes up to which a batch of the lane that
--   holds the watermark is taken    5 1 if the batch has rows     6 number of ranges
--   then of each range lane, first, next, mark (ms, or empty), rows below the first and rows below the
--   next (both empty where they are not counted, -1 where that is not known); then header, states and the bytes that they count
--   for of each log
-- Answers
--   APPLIED seq | NO_TASK | WRONG_EPOCH current | PAUSED | WRONG_VERSION current | CUT lane offset
--   STALE lane current rows (-1: no such lane) | BACKPRESSURE

local RANGES_AT, RANGE_WIDTH, LOGS_AT = 7, 6, 13

-- A batch may have hundreds of lanes, so what is asked of each is one command for all of them; in
-- pieces, because the stack of Lua holds some thousand values.
local FIELDS_MAX = 1000

local function get_all(key, fields)
  local values = {}
  for at = 1, #fields, FIELDS_MAX do
    local upto = math.min(at + FIELDS_MAX - 1, #fields)
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields, at, upto))) do
      values[#values + 1] = value
    end
  end
  return values
end

local function change_all(command, key, parts)
  for at = 1, #parts, FIELDS_MAX do
    redis.call(command, key, unpack(parts, at, math.min(at + FIELDS_MAX - 1, #parts)))
  end
end

local range_count = tonumber(ARGV[6])
local ranges, lanes, logs = {}, {}, {}
for i = 0, range_count - 1 do
  local at = RANGES_AT + RANGE_WIDTH * i
  ranges[i + 1] = {
    lane = ARGV[at], first = ARGV[at + 1], next = ARGV[at + 2], mark = ARGV[at + 3],
    rows = ARGV[at + 4], rows_next = ARGV[at + 5],
  }
  lanes[i + 1] = ARGV[at]
end
local added = 0
for key = LOGS_AT, #KEYS, 2 do
  local at = RANGES_AT + RANGE_WIDTH * range_count + 3 * (key - LOGS_AT) / 2
  local size = tonumber(ARGV[at + 2])
  logs[#logs + 1] = {
    log = KEYS[key], sizes = KEYS[key + 1], header = ARGV[at], states = ARGV[at + 1], size = size,
  }
  added = added + size
end

-- A task that an older release has begun, or has given a version, does not know where its versions
-- begin. It is none until the leader has begun it anew, who takes such a store for lost.
local meta = redis.call('HMGET', KEYS[1], 'epoch', 'versions', 'active', 'version')
local newest = meta[2] and string.match(meta[2], '%d+$')
if not meta[1] or newest ~= meta[4] then return { 'NO_TASK' } end
if meta[1] ~= ARGV[1] then return { 'WRONG_EPOCH', meta[1] } end
if meta[3] ~= '1' then return { 'PAUSED' } end

local offsets, counted = get_all(KEYS[2], lanes), get_all(KEYS[12], lanes)
for i, range in ipairs(ranges) do
  local current, rows = offsets[i] or '-1', counted[i] or '0'
  if current ~= range.first or (range.rows ~= '' and rows ~= range.rows) then
    return { 'STALE', range.lane, current, rows }
  end
end

-- The batch's version, and the one after it. A version that the task does not have holds no offsets.
local known, newer = false, nil
for version in string.gmatch(meta[2], '%d+') do
  if known and not newer then newer = version end
  known = known or version == ARGV[2]
end

local function begins(version)
  local fields = {}
  for i, lane in ipairs(lanes) do fields[i] = version .. ':' .. lane end
  return get_all(KEYS[7], fields)
end

local begun, ended = begins(ARGV[2]), newer and begins(newer)
for i, range in ipairs(ranges) do
  range.limit = newer and tonumber(ended[i] or 0) or math.huge
  local fits = known and tonumber(range.first) >= tonumber(begun[i] or 0)
  if not fits or tonumber(range.next) > range.limit then return { 'WRONG_VERSION', newest } end
end

-- The lanes of a backfill (3@b1, 4@b1) go on together, in fixed chunks; any other lane by itself.
local function group(lane) return string.match(lane, '@.*$') or lane end

local apart = false
for _, range in ipairs(ranges) do
  apart = apart or group(range.lane) ~= group(ranges[1].lane)
end

-- Until lanes that go on by themselves are behind all of their cuts, they lie on different sides of
-- what a bucket has accounted: an entry of two of them would, too, so any cut ahead is in its way.
-- The end of a lane is a cut that nothing goes beyond, not even a range that begins there.
local lane_ends, lane_cuts = get_all(KEYS[9], lanes), get_all(KEYS[8], lanes)
local function cut_in_the_way(i, range)
  local lane_end, cuts = lane_ends[i], lane_cuts[i] or ''
  local lowest = lane_end and tonumber(lane_end) < tonumber(range.next) and lane_end or nil
  local upto = apart and math.huge or tonumber(range.next)
  for cut in string.gmatch(cuts, '%d+') do
    local offset = tonumber(cut)
    if offset > tonumber(range.first) and offset < upto then
      if not lowest or offset < tonumber(lowest) then lowest = cut end
    end
  end
  return lowest
end

for i, range in ipairs(ranges) do
  local cut = cut_in_the_way(i, range)
  if cut then return { 'CUT', range.lane, cut } end
end

-- How many rows lie below the end of a range: none where the next version begins. Behind rows that
-- are gone they go on from there where no record says more of any offset ahead.
local function is_known_ahead(range)
  local fields = redis.call('HKEYS', KEYS[12])
  for _, field in ipairs(fields) do
    local offset, lane = string.match(field, '^(%d+):(.*)$')
    if lane == range.lane and tonumber(offset) > tonumber(range.next) then return true end
  end
  return false
end

local function rows_behind(range)
  if tonumber(range.next) == range.limit then return '0' end
  local known = redis.call('HGET', KEYS[12], range.next .. ':' .. range.lane)
  if known then return known end
  if range.rows_next ~= '-1' then return range.rows_next end
  return is_known_ahead(range) and '-1' or range.rows
end

local function as_table(pairs_list)
  local values = {}
  for i = 1, #pairs_list, 2 do values[pairs_list[i]] = tonumber(pairs_list[i + 1]) end
  return values
end

-- The rows of a lane that holds the watermark are those that let windows close, and so the log
-- empty. Holders are the lanes with the lowest mark, one without any mark being lowest of all; a lane
-- that has a lease or is read to its end holds nothing. The lanes of a backfill hold it together:
-- their rows come in a fixed order, so those of one may have to come before another's.
local now = redis.call('TIME')
local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)

local function holds_watermark()
  local marks = as_table(redis.call('HGETALL', KEYS[3]))
  local leases = as_table(redis.call('HGETALL', KEYS[4]))
  local ends = as_table(redis.call('HGETALL', KEYS[9]))
  local NO_MARK = -math.huge
  local lowest, held = math.huge, {}
  for lane, offset in pairs(as_table(redis.call('HGETALL', KEYS[2]))) do
    local finished = ends[lane] and offset >= ends[lane]
    if (leases[lane] or 0) <= now_ms and not finished then
      held[lane] = marks[lane] or NO_MARK
      lowest = math.min(lowest, held[lane])
    end
  end
  local groups = {}
  for lane, mark in pairs(held) do
    if mark == lowest then groups[group(lane)] = true end
  end
  for _, range in ipairs(ranges) do
    if not groups[group(range.lane)] then return false end
  end
  return true
end

-- A holder is taken beyond the budget, up to a limit: while no reducer runs nothing empties the log.
-- In a log that is within the budget any batch of it is taken, however large: no merging of what is
-- there would make more room for it.
local used, budget = tonumber(redis.call('GET', KEYS[6]) or 0), tonumber(ARGV[3])
local function has_room()
  if used + added <= budget then return true end
  return (used <= budget or used + added <= tonumber(ARGV[4])) and holds_watermark()
end

if not has_room() then return { 'BACKPRESSURE' } end

-- Everything is checked: from here on, only writes that cannot fail.
local seq = string.format('%.0f', redis.call('INCR', KEYS[5]))
for _, entry in ipairs(logs) do
  redis.call('XADD', entry.log, seq .. '-0', 'h', entry.header, 'd', entry.states)
  redis.call('HSET', entry.sizes, seq, entry.size)
end
redis.call('INCRBY', KEYS[6], string.format('%.0f', added))
local nexts, marks, taken = {}, {}, {}
local function note(parts, lane, value)
  parts[#parts + 1], parts[#parts + 2] = lane, value
end

local older, taken_now = get_all(KEYS[3], lanes), string.format('%.0f', now_ms)
for i, range in ipairs(ranges) do
  note(nexts, range.lane, range.next)
  if range.rows ~= '' then redis.call('HSET', KEYS[12], range.lane, rows_behind(range)) end
  if range.mark ~= '' then
    if not older[i] or tonumber(range.mark) > tonumber(older[i]) then
      note(marks, range.lane, range.mark)
    end
    note(taken, range.lane, taken_now)
  end
end
change_all('HSET', KEYS[2], nexts)
change_all('HSET', KEYS[3], marks)
change_all('HSET', KEYS[11], taken)
if ARGV[5] == '1' then change_all('HDEL', KEYS[4], lanes) end
redis.pcall('SPUBLISH', KEYS[10], seq)
return { 'APPLIED', seq }
