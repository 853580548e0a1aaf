"""Bigram-Backcopy (Guo et al. 2024): a small language in which some characters ask for a copy."""
