"""What Mars says of itself: why a window has not come, and whether a finished one is right."""
