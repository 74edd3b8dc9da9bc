"""Real processes, real faults: nothing lost, nothing doubled."""
