"""Gu et al. 2025, "When Attention Sink Emerges in Language Models" (arXiv 2410.10781): the studies of trained models."""
