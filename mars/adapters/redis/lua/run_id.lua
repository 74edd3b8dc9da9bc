#!lua flags=no-writes
-- run_id, version 1: whose answers those of the same transaction are. To ask with each head took as
-- long as the head itself.
--
-- KEYS   none
-- ARGV   none
-- Answers   the run id: of the server, and of its history (see connection.py)

local server = redis.call('INFO', 'server', 'replication')
return string.match(server, 'run_id:(%x+)') .. string.match(server, 'master_replid:(%x+)')
