#!lua flags=allow-oom
-- trim, version 4: delete entries of one log that nobody needs any more (R9).
--
-- KEYS   1 meta   2 bytes   3 log   4 sizes of that log (see append.lua)   5 merged (see merge.lua)
-- ARGV   1 store epoch   2 which life of the task (see initialise.lua)   3 ... seq of each entry;
--        those that are gone already are passed over
-- Answers   1 done | 0 refused: no such task, epoch or life

local life = redis.call('HMGET', KEYS[1], 'epoch', 'born')
if life[1] ~= ARGV[1] or (life[2] or '') ~= ARGV[2] then return 0 end

local freed, seqs, ids = 0, {}, {}
if #ARGV > 2 then
  for i, size in ipairs(redis.call('HMGET', KEYS[4], unpack(ARGV, 3))) do
    if size then
      freed = freed + tonumber(size)
      seqs[#seqs + 1], ids[#ids + 1] = ARGV[i + 2], ARGV[i + 2] .. '-0'
    end
  end
end
if #seqs > 0 then
  if redis.call('XDEL', KEYS[3], unpack(ids)) < #ids then
    for _, seq in ipairs(seqs) do redis.call('ZREMRANGEBYSCORE', KEYS[5], seq, seq) end
  end
  redis.call('HDEL', KEYS[4], unpack(seqs))
end
redis.call('DECRBY', KEYS[2], string.format('%.0f', freed))
return 1
