#!lua flags=allow-oom
-- initialise, version 7: begin a life of a task: unlink all that there is of it, set it anew.
--
-- KEYS   1 meta   2 offsets   3 bounds   4 cuts   5 ends   6 rows (see append.lua)
--        7 ... every other key of the task
-- ARGV   1 store epoch   2 leader epoch   3 versions, ascending, joined by commas   4 the last one of
--        them   5 active (1 or 0)   6 number of buckets   7 the mark from which event time goes on
--        where all lanes are idle, or empty   8 when it was taken, by another clock, or empty
--        then five lists, each as its length followed by that many pairs:
--        lane, offset | field of bounds, offset | lane, cuts joined by commas | lane, end |
--        field of rows, rows
-- Answers   1 done | 0 refused: the task is of this epoch or of a later one
--
-- `born` tells this life of the task from another one of the same epoch: there are two where the
-- store was emptied before it was sealed. `begun_on` is the run id of this server (see run_id.lua): a
-- replica that takes its place later may lack anything that was written to it.

local epoch = redis.call('HGET', KEYS[1], 'epoch')
if epoch and tonumber(epoch) >= tonumber(ARGV[1]) then return 0 end

for _, key in ipairs(KEYS) do redis.call('UNLINK', key) end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'leader', ARGV[2], 'versions', ARGV[3])
redis.call('HSET', KEYS[1], 'version', ARGV[4], 'active', ARGV[5], 'buckets', ARGV[6])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'mark', ARGV[7]) end
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], 'born', now[1] .. '.' .. now[2])
local server = redis.call('INFO', 'server', 'replication')
local run_id = string.match(server, 'run_id:(%x+)') .. string.match(server, 'master_replid:(%x+)')
redis.call('HSET', KEYS[1], 'begun_on', run_id)
if ARGV[8] ~= '' then
  local now_ms = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
  local taken_ms = math.min(tonumber(ARGV[8]), now_ms)
  redis.call('HSET', KEYS[1], 'taken', string.format('%.0f', taken_ms))
end
local at = 9
for key = 2, 6 do
  local length = tonumber(ARGV[at])
  for i = 1, length do
    redis.call('HSET', KEYS[key], ARGV[at + 2 * i - 1], ARGV[at + 2 * i])
  end
  at = at + 1 + 2 * length
end
return 1
