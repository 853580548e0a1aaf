"""Texts and tokens: prompts with an explicit BOS policy, and corpora that say where they come from."""
