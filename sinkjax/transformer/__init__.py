"""The forward pass of every model: block, attention, MLP, and the sites where edits and probes act.

Start with `forward.py`, which explains the pass in ten lines, then read `block.py` and `attention.py`. A tape (`tape.py`) is
called at each site, applies the edits there, and records the requested measurements.
"""
