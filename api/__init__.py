"""The REST API: streams, tasks, their windows and results, and the state of the cluster."""

import os

# Before polars is imported, as in `mapper/__init__.py`.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
