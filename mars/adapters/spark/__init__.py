"""Spark as the engine of all that is big or old: the same kernel, on many rows at once.

    engine        BulkEngine: map jobs and queries on a Spark session
    session       the session: master, memory, the Java machine
    packaging     our code as an archive for executors that do not have it
    planning      ranges to tasks, plans of jobs
    work          what a task does: read, map, combine; merge by bucket; finish  (no Spark in it)
    reading       rows of a topic, a range of offsets at a time
    file_reading  rows of Parquet, NDJSON and CSV files
    files         directories and globs to the history of a task
    rounds        Structured Streaming: round after round of planned work
    lane_work     what a task of a round does for a mapper on Spark  (no Spark in it)
    errors        Spark's errors to ours

Executors read Kafka themselves and run the kernel: nothing of a row ever passes through Java.
"""
