"""Studies as values (conditions, measurements and claims), and the framework that runs them.

A study is written with the words in `vocabulary.py`; docs/add-a-study.md shows how. `lower.py` turns its words into sweeps,
`run.py` executes them, `judging.py` judges the claims, and `assemble.py` makes the section of a report.
"""
