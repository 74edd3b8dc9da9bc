"""What a user runs, end to end, on real servers."""
