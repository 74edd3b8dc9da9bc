#!lua flags=allow-oom
-- trim, version 3: delete entries of one log that nobody needs any more (R9).
--
-- KEYS   1 meta   2 bytes   3 log   4 sizes of that log (see append.lua)   5 merged (see merge.lua)
-- ARGV   1 store epoch   2 which life of the task (see initialise.lua)   3 ... seq of each entry;
--        those that are gone already are passed over
-- Answers   1 done | 0 refused: no such task, epoch or life

local life = redis.call('HMGET', KEYS[1], 'epoch', 'born')
if life[1] ~= ARGV[1] or (life[2] or '') ~= ARGV[2] then return 0 end

local freed = 0
for i = 3, #ARGV do
  local size = redis.call('HGET', KEYS[4], ARGV[i])
  if size then
    freed = freed + tonumber(size)
    if redis.call('XDEL', KEYS[3], ARGV[i] .. '-0') == 0 then
      redis.call('ZREMRANGEBYSCORE', KEYS[5], ARGV[i], ARGV[i])
    end
    redis.call('HDEL', KEYS[4], ARGV[i])
  end
end
redis.call('DECRBY', KEYS[2], string.format('%.0f', freed))
return 1
