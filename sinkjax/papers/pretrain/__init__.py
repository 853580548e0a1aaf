"""Language models trained from scratch with one change at a time, next to the papers' tables.

Each table is a study in YAML (`configs/pretrain/`); this package defines its words.
"""

from sinkjax.papers.pretrain import _figures as _figures
from sinkjax.papers.pretrain import _outcomes as _outcomes
from sinkjax.papers.pretrain import _task as _task
