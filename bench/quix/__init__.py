"""A peer: Quix Streams, a Python library, in processes and an environment of their own."""
