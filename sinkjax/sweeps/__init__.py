"""Sweeps: many edits over many prompts, planned, shared with the baseline, stored and resumed.

`sweep` in `run.py` is the call; `plan.py` and `schedule.py` group edits, and `sharing.py` finds the layers that they share. A
store (`store.py`) is a folder of immutable objects, so that a killed sweep continues where it stopped.
"""
