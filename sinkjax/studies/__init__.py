"""What runs studies: their registry, settings and folders, and the stores, sections and pages of a run.

A study is a function of a lab (`sinkjax.lab`), which lies above this folder; docs/add-a-study.md shows how one is written.
`run.py` executes its sweeps and trainings, and `assemble.py` makes the section of a report.
"""
