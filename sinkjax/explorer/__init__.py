"""The explorer: a page on which one changes a model with a mouse and sees at once what that does."""
