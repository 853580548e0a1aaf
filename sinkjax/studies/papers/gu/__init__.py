"""Studies of Gu et al. 2025: when attention sinks emerge, in trained models."""
