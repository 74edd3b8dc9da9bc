"""What all Mars processes have in common: life and signals, logs, tasks, the member's report.

life       stop at SIGTERM or SIGINT, wait for servers that are not there
logs       structured log lines
compiling  definitions to runnable tasks
tasks      the registry's tasks, kept up to date
member     what this process says of itself
"""
