"""The REST API: streams, tasks, their windows and results, and the state of the cluster."""

from mars.process.memory import keep_small

keep_small()
