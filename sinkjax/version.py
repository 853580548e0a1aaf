"""The version of the package, for results and checkpoints; a module of its own, so that no layer imports the package itself."""

__version__ = "0.4.0"
