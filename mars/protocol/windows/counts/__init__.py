"""Windows that count rows: what a version does with them in a bucket."""
