"""Figures drawn from stored results, as `matplotlib.figure.Figure` objects: no display, no global state."""
