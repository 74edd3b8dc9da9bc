#!lua flags=allow-oom
-- set_active, version 1: pause a task or resume it. A resume clears the idle leases: what they said
-- of the lanes is from before the pause.
--
-- KEYS   1 meta   2 idle (see append.lua)
-- ARGV   1 store epoch   2 active (1 or 0)
-- Answers   1 done | 0 refused: no such task or epoch

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'active', ARGV[2])
if ARGV[2] == '1' then redis.call('UNLINK', KEYS[2]) end
return 1
