"""What all Mars processes have in common: life and signals, logs, tasks, the member's report.

life       stop at SIGTERM or SIGINT, wait for servers that are not there
logs       structured log lines
compiling  definitions to runnable tasks
tasks      the registry's tasks, kept up to date
metrics    figures of a process for Prometheus, on a port of its own
member     what this process says of itself
"""
