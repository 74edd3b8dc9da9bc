#!lua flags=allow-oom
-- set_active, version 2: pause a task or resume it. A resume clears the idle leases: what they said
-- of the lanes is from before the pause.
--
-- KEYS   1 meta   2 idle (see append.lua)
-- ARGV   1 store epoch   2 leader epoch   3 active (1 or 0)
-- Answers   1 done | 0 refused: no such task or epoch, or a later leader was heard of (see heed.lua)

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'leader')
if meta[1] ~= ARGV[1] or tonumber(meta[2] or 0) > tonumber(ARGV[2]) then return 0 end

redis.call('HSET', KEYS[1], 'leader', ARGV[2], 'active', ARGV[3])
if ARGV[3] == '1' then redis.call('UNLINK', KEYS[2]) end
return 1
