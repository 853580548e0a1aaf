"""The forward pass of every model: block, attention, MLP, and the places where edits and probes act."""
