"""Studies of training: when sinks and massive activations come about, and when they begin to matter."""
