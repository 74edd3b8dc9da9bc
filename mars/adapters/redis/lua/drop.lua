#!lua flags=allow-oom
-- drop, version 1: unlink all keys of a deleted task, but nothing of one that bears its name since.
--
-- KEYS   1 meta (see append.lua)   2 ... every other key of the task
-- ARGV   1 store epoch   2 leader epoch   3 the deleted task's last version
-- Answers   1 done, or there was nothing | 0 refused: a newer version is there, a later epoch, or in
--           this one a later leader was heard of (see heed.lua)

local meta = redis.call('HMGET', KEYS[1], 'epoch', 'leader', 'version')
if meta[1] then
  local epoch = tonumber(meta[1])
  if epoch > tonumber(ARGV[1]) then return 0 end
  if epoch == tonumber(ARGV[1]) and tonumber(meta[2] or 0) > tonumber(ARGV[2]) then return 0 end
  if tonumber(meta[3]) > tonumber(ARGV[3]) then return 0 end
end

for _, key in ipairs(KEYS) do redis.call('UNLINK', key) end
return 1
