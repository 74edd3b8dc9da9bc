"""Values and the environment: what everything else speaks of. Imports nothing else of Mars."""
