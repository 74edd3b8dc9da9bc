"""The reducer: merges partials, closes windows, commits results; one of them leads."""

import os

# Before polars is imported, as in `mapper/__init__.py`.
os.environ.setdefault("POLARS_MAX_THREADS", "1")
