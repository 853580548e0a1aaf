"""Explanations that are checked: where a score, a value or a logit comes from, and which component makes a metric."""
