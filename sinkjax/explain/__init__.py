"""Explanations that are checked: where a score, a value or a logit comes from, and which component makes a metric.

Decompositions add up to the number that they explain, and estimates by gradients are compared with interventions. Each module
is one question, answered from a forward pass, its gradient, or a few edits.
"""
