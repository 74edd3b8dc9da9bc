#!lua flags=allow-oom
-- switch_version, version 1: make a version the current one from these offsets on, and the task
-- active. Clears the idle leases, as a resume does.
--
-- KEYS   1 meta   2 idle   3 bounds (see append.lua)
-- ARGV   1 store epoch   2 version   3 ... lane, first offset of the version
-- Answers   1 done | 0 refused: no such task or epoch, or a newer version is current

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if meta[1] ~= ARGV[1] or tonumber(meta[2]) > tonumber(ARGV[2]) then return 0 end

redis.call('HSET', KEYS[1], 'version', ARGV[2], 'active', '1')
redis.call('UNLINK', KEYS[2], KEYS[3])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
return 1
