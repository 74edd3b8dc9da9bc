#!lua flags=allow-oom
-- renew_idle, version 3: lease lanes as idle, each by the same compare-and-set that guards its rows, so
-- that a mapper which lost a lane cannot do it. Allowed without memory: it lets windows close.
--
-- KEYS   1 meta   2 offsets   3 idle (see append.lua)
-- ARGV   1 store epoch   2 length, ms   3 the newest version that the mapper knows: that of a deleted
--        task of the name is none of the task's   4, 5 ... a lane, its next offset as the mapper knows it
-- Answers   for each lane 1 leased | 0 refused: no such task, epoch or version, paused, or another offset

local answers = {}
for at = 4, #ARGV, 2 do answers[#answers + 1] = 0 end

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'active', 'versions')
if meta[1] ~= ARGV[1] or meta[2] ~= '1' then return answers end
if not string.find(',' .. (meta[3] or '') .. ',', ',' .. ARGV[3] .. ',', 1, true) then return answers end

local now = redis.call('TIME')
local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
local until_ms = string.format('%.0f', now_ms + tonumber(ARGV[2]))
for number = 1, #answers do
  local lane, offset = ARGV[2 * number + 2], ARGV[2 * number + 3]
  if redis.call('HGET', KEYS[2], lane) == offset then
    redis.call('HSET', KEYS[3], lane, until_ms)
    answers[number] = 1
  end
end
return answers
