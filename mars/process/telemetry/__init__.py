"""What a process tells of itself: logs, metrics, traces, incidents, its report as a member."""
