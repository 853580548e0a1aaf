"""Studies of our own questions."""
