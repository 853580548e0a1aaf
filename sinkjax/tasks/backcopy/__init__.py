"""Bigram-Backcopy (Guo et al. 2024): a small language in which some characters must be followed by a copy."""
