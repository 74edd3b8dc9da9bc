#!lua flags=allow-oom
-- compact, version 5: put one entry of merged panes (the base) in place of all entries up to it, or
-- take the base away (R9); of each version that has open panes there is one. A base never goes back:
-- one below the present one comes from somebody who owned the bucket once. Allowed without memory: it
-- frees some.
--
-- KEYS   1 meta   2 bytes   3 log   4 sizes of that log (see append.lua)
--        5 base   hash: seq of the last entry merged, n (bytes that it counts for), h and d; then
--        h1 and d1 ... of older versions
--        6 merged (see merge.lua)
-- ARGV   1 store epoch   2 which life of the task (see initialise.lua)   3 seq, or empty to take the
--        base away   4 header   5 states   6 bytes that they count for   7 ... those of older versions
-- Answers   1 done | 0 refused: no such task, epoch or life, or a newer base is there

local life = redis.call('HMGET', KEYS[1], 'epoch', 'born')
if life[1] ~= ARGV[1] or (life[2] or '') ~= ARGV[2] then return 0 end
local present = redis.call('HMGET', KEYS[5], 'seq', 'n')
local change = 0 - tonumber(present[2] or 0) -- not -n: of 0 that is -0, which is no counter

if ARGV[3] == '' then
  redis.call('UNLINK', KEYS[5])
  redis.call('INCRBY', KEYS[2], string.format('%.0f', change))
  return 1
end

local seq = tonumber(ARGV[3])
if present[1] and tonumber(present[1]) > seq then return 0 end

local sizes = redis.call('HGETALL', KEYS[4])
for i = 1, #sizes, 2 do
  if tonumber(sizes[i]) <= seq then
    change = change - tonumber(sizes[i + 1])
    redis.call('HDEL', KEYS[4], sizes[i])
  end
end
redis.call('XTRIM', KEYS[3], 'MINID', '=', string.format('%.0f-0', seq + 1))
redis.call('ZREMRANGEBYSCORE', KEYS[6], '-inf', ARGV[3])
redis.call('UNLINK', KEYS[5])
local size = 0
for i = 4, #ARGV, 3 do
  local number = i > 4 and string.format('%.0f', (i - 4) / 3) or ''
  size = size + tonumber(ARGV[i + 2])
  redis.call('HSET', KEYS[5], 'h' .. number, ARGV[i], 'd' .. number, ARGV[i + 1])
end
redis.call('HSET', KEYS[5], 'seq', ARGV[3], 'n', size)
redis.call('INCRBY', KEYS[2], string.format('%.0f', change + size))
return 1
