"""Analysis of a record after the run: metrics, confidence intervals over prompts or seeds, and ranks among controls."""
