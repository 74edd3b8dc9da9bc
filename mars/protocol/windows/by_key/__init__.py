"""Windows that close key by key, by the marks of their keys."""
