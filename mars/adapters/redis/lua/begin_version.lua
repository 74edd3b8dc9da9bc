#!lua flags=allow-oom
-- begin_version, version 1: let a version follow the newest one where the lanes stand at this
-- moment, and stop the task. From here on no row at or beyond these offsets is taken as an older
-- version's, and none below them as the new one's, whoever sends it. A version that has begun stays
-- as it is, and the answer is what it was the first time.
--
-- KEYS   1 meta   2 offsets   3 marks   4 bounds (see append.lua)
-- ARGV   1 store epoch   2 leader epoch   3 run id of the server on which it was seen to be time (see
--        head.lua)   4 the version that is to begin   5 the version before it
-- Answers   [lane, first offset ...], [lane, mark ...] | nil where it is refused: no such task or
--           epoch, a later leader was heard of, another server, or another version is the newest

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'leader', 'versions')
if meta[1] ~= ARGV[1] or tonumber(meta[2] or 0) > tonumber(ARGV[2]) then return false end
if not meta[3] then return false end
local server = redis.call('INFO', 'server', 'replication')
local run_id = string.match(server, 'run_id:(%x+)') .. string.match(server, 'master_replid:(%x+)')
if run_id ~= ARGV[3] then return false end
local newest = string.match(meta[3], '%d+$')
if newest ~= ARGV[4] and newest ~= ARGV[5] then return false end

-- Everything is checked: from here on, only writes that cannot fail.
redis.call('HSET', KEYS[1], 'leader', ARGV[2])
if newest == ARGV[5] then
  local offsets = redis.call('HGETALL', KEYS[2])
  for i = 1, #offsets, 2 do
    redis.call('HSET', KEYS[4], offsets[i], offsets[i + 1])
    redis.call('HSET', KEYS[4], ARGV[4] .. ':' .. offsets[i], offsets[i + 1])
  end
  redis.call('HSET', KEYS[1], 'version', ARGV[4], 'versions', meta[3] .. ',' .. ARGV[4])
  redis.call('HSET', KEYS[1], 'active', '0')
end

local bounds, starts = redis.call('HGETALL', KEYS[4]), {}
for i = 1, #bounds, 2 do
  local version, lane = string.match(bounds[i], '^(%d+):(.*)$')
  if version == ARGV[4] then
    starts[#starts + 1] = lane
    starts[#starts + 1] = bounds[i + 1]
  end
end
return { starts, redis.call('HGETALL', KEYS[3]) }
