"""A model as data: its architecture record, its parameters, and the parts that differ between architectures.

Norms, positions, normalisers, gates and experts are records that name their parameters and compute their part from arrays.
Edits, measurements and the forward pass that calls these parts are in other folders (`edits`, `probes`, `transformer`).
"""
