"""The explorer: an interactive page that shows the effect of an edit at once."""
