"""What is asked for, made into definitions: of one task, or of many at once."""
