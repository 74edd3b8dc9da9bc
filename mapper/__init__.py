"""The live mapper: reads Kafka, groups partially, puts partials into the store."""

import os

# Before polars is imported: a mapper is one of many processes, and threads of its own only wait for
# each other. Measured: `docs/performance.md`.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
