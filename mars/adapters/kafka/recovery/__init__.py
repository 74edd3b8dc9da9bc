"""What a transaction left behind is found and settled when a bucket is claimed."""
