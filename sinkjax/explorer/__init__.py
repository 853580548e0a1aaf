"""The explorer: an interactive page that shows the effect of an edit at once.

A state (`state.py`) is a model, a prompt and edits, chosen with a mouse; `compute.py` returns its numbers, and `code.py` writes
it as Python and YAML. The same requests are answered by a local web server and by a notebook widget.
"""
