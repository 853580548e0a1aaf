"""A language model that learns the next token of a text.

`architecture.py` has the fields of a model (norms, positions, normalisers, gates, ...) and `config.py` the fields of its
training. `finetune.py` continues from a loaded model instead, with the same losses and measurements.
"""
