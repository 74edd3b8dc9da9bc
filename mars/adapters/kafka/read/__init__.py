"""Output topics, read for people and their programs."""
