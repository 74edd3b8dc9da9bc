"""Pure state machines: they take events and give instructions, and touch nothing else.

    mapping    what a mapper reads, and which batch it offers to which task
    folding    the open panes of one bucket of one task version
    owning     one bucket of a reducer: claim, catch up, close windows, commit
    reducing   all buckets of a reducer
    leading    what the leader has to change, given everything it sees
    explaining why a window has not come

No machine imports a client library, reads a clock or draws a random number: time, crashes,
leadership and the outcome of every instruction are events.
"""
