"""What operators look at: members, figures, health, metrics, logs, incidents."""
