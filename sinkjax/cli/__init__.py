"""The command line: commands, options and the start of JAX.

Each command is a module that parses its options and calls the function that a Python user would call. `verbs.py` lists the
commands, `options.py` parses, and `main.py` turns errors and signals into messages and exit codes.
"""
