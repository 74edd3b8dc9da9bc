"""Messages to columns: every format, whatever producers send, and what of it cannot be read."""
