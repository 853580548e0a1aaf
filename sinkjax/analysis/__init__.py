"""What is computed from a record after a run: metrics, intervals over prompts or seeds, and ranks among controls."""
