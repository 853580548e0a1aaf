"""Interventions as data: what to change, where (`site.py`), and what that does to an array (`apply.py`).

An edit is declared with layers, heads, positions and a value (`edit.py`, `named.py`) and is resolved on the host into arrays of
fixed shape (`resolve.py`). The forward pass only sees these arrays, so many edits of one kind compile once.
"""
