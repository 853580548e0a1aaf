"""The model: its architecture record, its parameters, and the one forward pass."""
