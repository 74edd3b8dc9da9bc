"""Tuple tracking: a proof, beside the protocol, that every partial stored was counted.

After Du Huaming et al., a tuple tracking method for stream processing. The tree is a batch: its
root is the log entry's SEQ, its leaves the partials, one for each bucket that the batch wrote.

    mapper  ──stored: XOR of the ids──▶ acker ◀──counted: the same ids again── reducers
                                          │
                    0: every partial was counted, the record is forgotten
                    else, after a deadline: `judging` looks at what was committed

    ring       which acker a root belongs to: consistent hashing with virtual nodes
    records    the roots of one acker, some dozen bytes each
    acking     the machine of an acker
    judging    whether a root that is overdue was counted, is late or has lost a partial

What is told to an acker (`Note`), and what a bucket has counted (`Seen`), lie in the ports.

Nothing in the protocol waits for any of this. Notes may be lost, late or doubled, and a tracker may
be switched off at any time: then roots are not proven, and nothing else changes.
"""
