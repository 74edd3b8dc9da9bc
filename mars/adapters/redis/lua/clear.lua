#!lua flags=allow-oom
-- clear, version 1: at a look of their owners, clear logs for assistants above the SEQ of this
-- moment, or close them. Run in one transaction with the look itself.
--
-- KEYS   1 meta   2 seq   3 cleared   hash: bucket -> owner epoch:seq, without a seq if it is closed
-- ARGV   1 store epoch   then bucket, owner epoch, 1 to clear or 0 to close, of each log
-- Answers   how many were taken; passed over is who owned a bucket before the one who spoke last

if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then return 0 end

local seq = redis.call('GET', KEYS[2]) or '0'
local taken = 0
for i = 2, #ARGV, 3 do
  local last = redis.call('HGET', KEYS[3], ARGV[i])
  local owner = last and tonumber(string.match(last, '^%d+'))
  if not owner or owner <= tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1] .. ':' .. (ARGV[i + 2] == '1' and seq or ''))
    taken = taken + 1
  end
end
return taken
