#!lua flags=allow-oom
-- seal, version 1: leave the sentinel that names the epoch of all tasks of this store. It never
-- goes back: a lower epoch comes from a leader of before.
--
-- KEYS   1 store   hash: epoch, run_id of the server that was sealed
-- ARGV   1 store epoch   2 run id
-- Answers   1 done | 0 refused: a later epoch is sealed

local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) > tonumber(ARGV[1]) then return 0 end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'run_id', ARGV[2])
return 1
