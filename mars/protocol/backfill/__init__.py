"""What a bulk process maps next: histories, files and tasks that have fallen behind."""
