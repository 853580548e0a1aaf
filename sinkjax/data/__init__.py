"""Texts and tokens: prompts with an explicit BOS policy, and corpora with provenance."""
