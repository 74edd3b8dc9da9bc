"""A query tried over the last seconds of its topic: rows, predictions, and what looks wrong."""
