"""The forward pass of every model: block, attention, MLP, and the sites where edits and probes act."""
