"""Language models trained from scratch with one change at a time, next to the papers' tables.

Each table is a study in YAML (`configs/pretrain/`), which `_table.py` reads.
"""
