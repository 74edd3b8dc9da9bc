#!lua flags=allow-oom
-- merge, version 3: put one entry, which an assistant has merged, in place of several of a log: of
-- all of them or of none. Allowed without memory: it frees some.
--
-- KEYS   1 meta   2 bytes   3 log   4 sizes of that log (see append.lua)
--        5 merged    sorted set: what stands for several entries, by the last one's seq, whose size
--                    in 4 is that of all of it; a stream takes nothing between its entries
--        6 cleared   see clear.lua
-- ARGV   1 store epoch   2 version   3 run id of what they were read from (see head.lua)   4 bucket
--        5 owner epoch   6 content   7 bytes that it counts for
--        8 ... seq of each entry, ascending
-- Answers   1 done | 0 refused: no such task, epoch or version, another server, not cleared, or an
--           entry is gone or was merged before

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if meta[1] ~= ARGV[1] or meta[2] ~= ARGV[2] then return 0 end
local server = redis.call('INFO', 'server', 'replication')
local run_id = string.match(server, 'run_id:(%x+)') .. string.match(server, 'master_replid:(%x+)')
if run_id ~= ARGV[3] then return 0 end

local first, last = ARGV[8], ARGV[#ARGV]
local cleared = redis.call('HGET', KEYS[6], ARGV[4])
if not cleared then return 0 end
local owner, after = string.match(cleared, '^(%d+):(%d+)$')
if owner ~= ARGV[5] or tonumber(first) <= tonumber(after) then return 0 end

if redis.call('ZCOUNT', KEYS[5], first, last) > 0 then return 0 end
local change = 0
for i = 8, #ARGV do
  local size = redis.call('HGET', KEYS[4], ARGV[i])
  if not size then return 0 end
  change = change - tonumber(size)
end

-- Everything is checked: from here on, only writes that cannot fail.
for i = 8, #ARGV do
  redis.call('XDEL', KEYS[3], ARGV[i] .. '-0')
  redis.call('HDEL', KEYS[4], ARGV[i])
end
redis.call('ZADD', KEYS[5], last, ARGV[6])
redis.call('HSET', KEYS[4], last, ARGV[7])
redis.call('INCRBY', KEYS[2], string.format('%.0f', change + tonumber(ARGV[7])))
return 1
