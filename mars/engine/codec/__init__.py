"""States, log entries, snapshots, result headers and dead letters: columns to bytes, and back."""
