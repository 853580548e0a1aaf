"""Texts and tokens: prompts with an explicit BOS policy, and corpora with provenance.

`prompts.py` turns texts into a padded batch for one forward pass, and `corpora.py` chooses the passages that studies read. The
other modules turn a corpus into a file of tokens and batches for training.
"""
