"""Experiments: a typed config and a recipe each, found by name; `run` takes one from its config to a page."""
