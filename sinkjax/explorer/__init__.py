"""The explorer: a page to change a model with a mouse and see the effect at once."""
