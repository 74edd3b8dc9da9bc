"""The commands that start, show and stop the processes of a cluster."""
