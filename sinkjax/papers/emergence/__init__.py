"""Studies of training: when sinks and massive activations form, and when they start to matter."""
