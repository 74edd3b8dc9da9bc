"""What the leader has to change, given everything that it sees."""
