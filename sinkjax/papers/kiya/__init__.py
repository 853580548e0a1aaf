"""Kiya et al. 2026: causal interventions that separate the causes of sinks and massive activations."""
