"""Figures drawn from stored results, as `matplotlib.figure.Figure` objects: no display, no global state.

Each module is one kind of picture and takes arrays and labels, not studies. `style.py` sets the colours and sizes of all of
them, and `sinkjax.plot` gives the same functions to notebooks.
"""
