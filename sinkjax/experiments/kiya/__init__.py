"""Kiya et al. 2026 (NLP2026): the first key's sink, taken apart by intervention."""
