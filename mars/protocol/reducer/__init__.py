"""One bucket of a reducer: claim, catch up, close windows, commit; and all buckets of a process."""
