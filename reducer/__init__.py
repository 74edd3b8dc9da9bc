"""The reducer: merges partials, closes windows, commits results; one of them leads."""
