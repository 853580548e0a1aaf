"""Bigram-Backcopy (Guo et al. 2024): a small language where a copy must follow some characters.

`config.py` has the settings, and `task.py` the sequences and the measurements. It builds models as `tasks/language_model` does,
so every architectural choice there can be tried here.
"""
