-- The query of the benchmark, as a user of Flink SQL writes it; query.py fills in the names.
-- All 20 fields are declared; the planner pushes the projection into the format, so only those
-- that are used are decoded, as in Mars.
SET 'pipeline.name' = '${name}';

CREATE TABLE source (
  ${columns},
  event_time AS TO_TIMESTAMP_LTZ(`timestamp`, 3),
  WATERMARK FOR event_time AS event_time - INTERVAL '${delay_s}' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '${topic}',
  'properties.bootstrap.servers' = '${bootstrap}',
  'properties.group.id' = '${name}',
  'scan.startup.mode' = '${start}',
  'format' = '${format}'
);

-- The same columns that Mars writes, with times in epoch milliseconds. Nothing is keyed: the sink
-- is spared what the query does not ask for.
CREATE TABLE sink (
  window_start BIGINT, window_end BIGINT, sip STRING, `type` STRING, `timestamp` BIGINT,
  `count` BIGINT
) WITH (
  'connector' = 'kafka',
  'topic' = '${output}',
  'properties.bootstrap.servers' = '${bootstrap}',
  'properties.transaction.timeout.ms' = '600000',
  'properties.compression.type' = 'lz4',
  'properties.batch.size' = '262144',
  'properties.linger.ms' = '5',
  'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '${name}',
  'format' = 'json'
);

INSERT INTO sink
SELECT
  1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT),
  1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_end) AS BIGINT),
  sip, `type`,
  1000 * CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT),
  COUNT(*)
FROM TABLE(TUMBLE(TABLE source, DESCRIPTOR(event_time), INTERVAL '${window_s}' SECOND))
GROUP BY window_start, window_end, sip, `type`;
