"""Bytes of messages to columns, columns to states, states to result rows: pure, without memory."""
