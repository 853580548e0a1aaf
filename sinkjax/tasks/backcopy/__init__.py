"""Bigram-Backcopy (Guo et al. 2024): a small language where a copy must follow some characters."""
