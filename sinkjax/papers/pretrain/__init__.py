"""Language models trained from scratch, one thing changed at a time, beside the papers' tables.

Each table is a study in YAML (`configs/pretrain/`); this package defines its words.
"""

from sinkjax.papers.pretrain import _figures as _figures
from sinkjax.papers.pretrain import _outcomes as _outcomes
from sinkjax.papers.pretrain import _task as _task
