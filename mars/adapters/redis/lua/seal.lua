#!lua flags=allow-oom
-- seal, version 2: leave the sentinel that names the epoch of all tasks of this store. It never
-- goes back: a lower epoch, or a lower leader of the same one, comes from a leader of before.
--
-- KEYS   1 store   hash: epoch, leader epoch, run_id of the server that was sealed, and versions: the
--                  epoch whose tasks know where each of their versions begins. A release that did not
--                  let them know leaves that field as it was: what it has sealed counts as lost.
-- ARGV   1 store epoch   2 leader epoch   3 run id
-- Answers   1 done | 0 refused: a later epoch is sealed, or this one by a later leader

local sealed = redis.call('HMGET', KEYS[1], 'epoch', 'leader')
local epoch = tonumber(sealed[1] or 0)
if epoch > tonumber(ARGV[1]) then return 0 end
if epoch == tonumber(ARGV[1]) and tonumber(sealed[2] or 0) > tonumber(ARGV[2]) then return 0 end

redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'leader', ARGV[2], 'run_id', ARGV[3])
redis.call('HSET', KEYS[1], 'versions', ARGV[1])
return 1
