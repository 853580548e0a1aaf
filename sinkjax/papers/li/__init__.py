"""Li et al. 2026: the first token's head outputs are not averaged, so they vary more and start the massive activation and the sink."""
