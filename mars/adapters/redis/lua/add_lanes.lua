#!lua flags=allow-oom
-- add_lanes, version 2: give a task lanes that it does not have yet; those it has stay as they are.
--
-- KEYS   1 meta   2 offsets (see append.lua)
-- ARGV   1 store epoch   2 leader epoch   3 ... lane, first offset
-- Answers   1 done | 0 refused: no such task or epoch, or a later leader was heard of (see heed.lua)

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'leader')
if meta[1] ~= ARGV[1] or tonumber(meta[2] or 0) > tonumber(ARGV[2]) then return 0 end

redis.call('HSET', KEYS[1], 'leader', ARGV[2])
for i = 3, #ARGV, 2 do redis.call('HSETNX', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
