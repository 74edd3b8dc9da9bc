"""The REST API: streams, tasks, their windows and results, and the state of the cluster."""
