"""A language model that learns the next token of a text."""
