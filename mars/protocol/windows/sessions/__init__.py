"""Sessions: what a version does with them in a bucket (decision 56)."""
