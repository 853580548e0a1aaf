"""Config and result files: strict, typed YAML, and atomic writes.

A key, type or value that a config does not allow is an error that names it, before anything is computed. Files are written
whole or not at all, in a folder or in an object store (`locations.py`).
"""
