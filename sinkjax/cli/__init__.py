"""The command line: commands, options and the start of JAX."""
