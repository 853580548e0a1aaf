"""The studies of Li, Jiang, Sun and Hu 2026, "The Structural Origin of Attention Sink" (arXiv 2605.06611).

The full text of the paper was not available. What it states was taken from its abstract and from summaries of it; what those do
not state (layers, factors, what a mean is taken over, which statistic of a matrix, how many prompts) is a choice made here, and
each config says which. Positions and layers count from 0, so the paper's first token is position 0 and its layer 1 is layer 0.
"""
