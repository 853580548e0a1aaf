"""Analysis of a record after the run: metrics, confidence intervals over prompts or seeds, and the rule that judges claims.

Functions take arrays or records and return numbers; no model is loaded and nothing is drawn. Start with `metrics.py` for sinks
and activations, with `intervals.py` for uncertainty, and with `judgement.py` for the one rule.
"""
