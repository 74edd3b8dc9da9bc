#!lua flags=allow-oom
-- add_lanes, version 1: give a task lanes that it does not have yet; those it has stay as they are.
--
-- KEYS   1 meta   2 offsets (see append.lua)
-- ARGV   1 store epoch   2 ... lane, first offset
-- Answers   1 done | 0 refused: no such task or epoch

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
for i = 2, #ARGV, 2 do redis.call('HSETNX', KEYS[2], ARGV[i], ARGV[i + 1]) end
return 1
