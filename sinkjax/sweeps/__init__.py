"""Sweeps: many edits over many prompts, planned, shared with the baseline, stored and resumed."""
