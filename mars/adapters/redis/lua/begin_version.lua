#!lua flags=allow-oom
-- begin_version, version 2: let a version follow the newest one where the lanes stand at this
-- moment, and stop the task. From here on no row at or beyond these offsets is taken as an older
-- version's, and none below them as the new one's, whoever sends it. A version that has begun stays
-- as it is, and the answer is what it was the first time.
--
-- KEYS   1 meta   2 offsets   3 marks   4 bounds   5 rows (see append.lua)
-- ARGV   1 store epoch   2 leader epoch   3 run id of the server on which it was seen to be time (see
--        head.lua)   4 the version that is to begin   5 the version before it
-- Answers   [lane, first offset ...], [lane, mark ...], [lane, rows of the version before ...] | nil
--           where it is refused: no such task or epoch, a later leader was heard of, another server,
--           or another version is the newest

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
  local rows = redis.call('HGETALL', KEYS[5])
  for i = 1, #rows, 2 do
    if not string.find(rows[i], ':') then
      redis.call('HSET', KEYS[5], 'v' .. ARGV[4] .. ':' .. rows[i], rows[i + 1])
      redis.call('HDEL', KEYS[5], rows[i])
    end
  end
  local offsets = redis.call('HGETALL', KEYS[2])
  for i = 1, #offsets, 2 do
    redis.call('HSET', KEYS[4], offsets[i], offsets[i + 1])
    redis.call('HSET', KEYS[4], ARGV[4] .. ':' .. offsets[i], offsets[i + 1])
  end
  redis.call('HSET', KEYS[1], 'version', ARGV[4], 'versions', meta[3] .. ',' .. ARGV[4])
  redis.call('HSET', KEYS[1], 'active', '0')
end

local function of_version(key, sign)
  local fields, found = redis.call('HGETALL', key), {}
  for i = 1, #fields, 2 do
    local version, lane = string.match(fields[i], '^' .. sign .. '(%d+):(.*)$')
    if version == ARGV[4] then
      found[#found + 1] = lane
      found[#found + 1] = fields[i + 1]
    end
  end
  return found
end

return { of_version(KEYS[4], ''), redis.call('HGETALL', KEYS[3]), of_version(KEYS[5], 'v') }
