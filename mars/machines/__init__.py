"""Pure state machines: they take events and give instructions, and touch nothing else.

    mapping    what a mapper reads, and which batch it offers to which task; `mapping_steering`,
               `mapping_batches` and `mapping_idleness` are its parts
    folding    the open panes of one bucket of one task version
    owning     one bucket of a reducer: claim, catch up, close windows, commit
    reducing   all buckets of a reducer
    leading    what the leader has to change, given everything it sees; `leading_tasks` for one task
    explaining why a window has not come; `evidence` is what that rests on, `history` how far a
               task is with its backfills
    backfilling  what a bulk process maps next

No machine imports a client library, reads a clock or draws a random number: time, crashes,
leadership and the outcome of every instruction are events.
"""
