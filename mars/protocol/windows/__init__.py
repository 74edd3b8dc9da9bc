"""The open panes of one bucket of a task version: rows into panes, panes into windows."""
