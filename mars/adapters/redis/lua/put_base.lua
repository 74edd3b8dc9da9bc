#!lua flags=allow-oom
-- put_base, version 3: let a bucket's log begin with panes that were saved in Kafka, as a base with
-- seq 0: none of the log's entries is in it. A base that is there stays: it was restored before, or
-- is one of later. Allowed without memory: what others read again meanwhile must not keep a task
-- from the panes that it had before.
--
-- KEYS   1 meta   2 bytes   3 base (see compact.lua)
-- ARGV   1 store epoch   2 which life of the task (see initialise.lua)   3 header   4 states   5 bytes
--        that they count for   6 ... those of older versions
-- Answers   1 done, or there is a base | 0 refused: no such task, epoch or life

local life = redis.call('HMGET', KEYS[1], 'epoch', 'born')
if life[1] ~= ARGV[1] or (life[2] or '') ~= ARGV[2] then return 0 end
if redis.call('EXISTS', KEYS[3]) == 1 then return 1 end

local size = 0
for i = 3, #ARGV, 3 do
  local number = i > 3 and string.format('%.0f', (i - 3) / 3) or ''
  size = size + tonumber(ARGV[i + 2])
  redis.call('HSET', KEYS[3], 'h' .. number, ARGV[i], 'd' .. number, ARGV[i + 1])
end
redis.call('HSET', KEYS[3], 'seq', '0', 'n', size)
redis.call('INCRBY', KEYS[2], string.format('%.0f', size))
return 1
