"""What goes on inside a task: windows, ledgers, why, results, rows that were not counted."""
