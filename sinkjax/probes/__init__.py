"""Measurements as data: the request (`probe.py`), the reductions inside the forward pass, and the resulting record.

Statistics are reduced where their array exists, so that no attention map is kept unless it is requested. A probe never changes
a number; a new statistic is one function in `statistics.py`, or a `Statistic` of yours.
"""
