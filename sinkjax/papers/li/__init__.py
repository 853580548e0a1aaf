"""Li et al. 2026: head outputs of the first token are not averaged, so they vary more and start the activation and the sink."""
