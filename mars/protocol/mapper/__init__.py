"""What a mapper reads, which batch it offers to which task, and when a lane counts as idle."""
