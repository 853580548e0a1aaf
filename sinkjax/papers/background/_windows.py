"""A known number of li/mediation, which is not a function yet: the dim of the stream that makes a key large."""

from __future__ import annotations

from sinkjax.papers.background import _massive
from sinkjax.studies.known import Unedited, zero
from sinkjax.studies.scope import Known, Scope


@Known.define(blank=zero, of_edited=True)
def largest_dim(scope: Scope, run: Unedited) -> int:
    """The dim of the first token's largest |h| after any layer, in the mean over prompts."""
    return _massive.largest_dim(run)
