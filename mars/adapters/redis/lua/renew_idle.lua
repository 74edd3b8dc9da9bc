#!lua flags=allow-oom
-- renew_idle, version 2: lease a lane as idle, by the same compare-and-set that guards its rows, so
-- that a mapper which lost the lane cannot do it. Allowed without memory: it lets windows close.
--
-- KEYS   1 meta   2 offsets   3 idle (see append.lua)
-- ARGV   1 store epoch   2 lane   3 its next offset as the mapper knows it   4 length, ms
--        5 the newest version that the mapper knows: that of a deleted task of the name is none of the task's
-- Answers   1 leased | 0 refused: no such task, epoch or version, paused, or another offset

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'active', 'versions')
if meta[1] ~= ARGV[1] or meta[2] ~= '1' then return 0 end
if not string.find(',' .. (meta[3] or '') .. ',', ',' .. ARGV[5] .. ',', 1, true) then return 0 end
if redis.call('HGET', KEYS[2], ARGV[2]) ~= ARGV[3] then return 0 end

local now = redis.call('TIME')
local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
redis.call('HSET', KEYS[3], ARGV[2], string.format('%.0f', now_ms + tonumber(ARGV[4])))
return 1
