#!lua flags=allow-oom
-- heed, version 1: let a life of a task hear of a leader. What a leader of before asks for later is
-- refused by every script that a leader calls.
--
-- KEYS   1 meta (see append.lua)
-- ARGV   1 store epoch   2 leader epoch
-- Answers   1 done | 0 refused: no such task or epoch, or a later leader was heard of

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'leader')
if meta[1] ~= ARGV[1] or tonumber(meta[2] or 0) > tonumber(ARGV[2]) then return 0 end

redis.call('HSET', KEYS[1], 'leader', ARGV[2])
return 1
