"""The peer: Flink SQL with its exactly-once Kafka sink, on a standalone cluster of its own."""
