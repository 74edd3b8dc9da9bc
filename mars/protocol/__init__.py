"""The exactly-once protocol as pure machines: they take events and give instructions.

    ports      what the machines need of the world, as Protocols
    mapper     what a mapper reads, and which batch it offers to which task
    reducer    one bucket of a reducer: claim, catch up, close windows, commit; and all of a process
    windows    the open panes of one bucket of one task version
    leader     what the leader has to change, given everything that it sees
    balance    which reducer has which bucket, who helps whom, how many processes there should be
    backfill   what a bulk process maps next
    tracker    a proof, beside the protocol, that every partial stored was counted

No machine imports a client library, reads a clock or draws a random number: time, crashes,
leadership and the outcome of every instruction are events. docs/internals/protocol.md has the rules
that the code cites.
"""
