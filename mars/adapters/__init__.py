"""The hands of Mars: `mars.protocol.ports` on Kafka, Redis, ZooKeeper and Spark, and in memory.

    kafka/       SourceReader, ResultSink, ProgressLog, ControlLog, TopicAdmin
    redis/       PartialLog
    zookeeper/   Registry, Coordinator
    memory/      a twin of each, which can be told to fail

No other room imports a client library. Each adapter maps its library's errors to those of
`mars.core.errors` in one table.
"""
