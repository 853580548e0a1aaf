"""Data types of the rule of judgement: the evidence on a claim, and the judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval

RANK = 0.95  # share of its controls that a contrast must exceed
Array = NDArray[Any]
Tested = Literal["replicates", "opposite", "absent", "moves", "undecided", "holds", "fails"]
Word = Tested | Literal["not applicable", "not applicable: the edit did not take", "nothing to undo"]
NOT_TAKEN: Word = "not applicable: the edit did not take"
UNJUDGED = ("not applicable", NOT_TAKEN, "nothing to undo")  # never counted as judged


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers that decide a claim.

    Attributes:
        contrast: float[n], the paper's contrast in each document or seed, or float[n, p], in each position too (documents and
            positions are then crossed clusters). A sample that is not finite here, in a control or in `whole` is excluded.
        controls: float[m, n'] or float[m, n', p], the same contrast under each matched control, in the first n' <= n documents;
            then only these documents count.
        whole: float[n] or float[n, p], the unedited value, or the damage that is undone; None if the claim is judged
            without a size.
        range: Lowest and highest possible value of the contrast's measure, such as (0, 1) for a sink
            rate; None if there is no bound and the numbers are logarithms.
        clusters: int[n] or str[n], such as each document's genre or article. Each cluster then counts as one sample, the mean of
            its documents. None if documents are independent.
        samples: The noun for samples in text, "documents" or "seeds".
        all_controls: Whether these are all possible controls.
        recovery: Whether the contrast undoes a damage, which `whole` is.
    """

    contrast: Array
    controls: Array | None = None
    whole: Array | None = None
    range: tuple[float, float] | None = None
    clusters: Array | None = None
    samples: str = "documents"
    all_controls: bool = False
    recovery: bool = False


@dataclass(frozen=True)
class ContrastRank:
    """Rank among `of` controls: how many have a mean below the contrast's mean (after the sign), and how many an equal one.

    spread: lowest and highest mean of a control minus the mean of all controls, in the unit of D; None if none is finite.
    """

    below: int
    tied: int
    of: int
    spread: tuple[float, float] | None = field(default=None, compare=False)

    @property
    def above(self) -> bool:
        """Whether the contrast is above the controls."""
        return self.below >= self.needed

    @property
    def needed(self) -> int:
        """Number of controls that must be below: 95% of controls and contrast, so that 5% of new controls pass; at most all."""
        return min(self.of, math.ceil(RANK * (self.of + 1) - 1e-9))


@dataclass(frozen=True)
class Judgement:
    """Judgement of a claim: a word, and the numbers that decided it.

    Attributes:
        word: The word.
        D, S, W: Contrast minus its controls, its share of the whole, and the whole, with intervals; None if not computed.
        rank: Among the controls; None without controls.
        n: Independent samples: documents, seeds or clusters; if crossed, the fewer of documents and positions.
        method: How the intervals were computed, as text.
        reason: The number that decided against "replicates" and the bound that it met or did not meet; otherwise "".
        untrained: Whether the untrained twin shows the same.
        stays: Whether the claim says that something stays the same.
    """

    word: Word
    D: Interval | None = None
    S: Interval | None = None
    W: Interval | None = None
    rank: ContrastRank | None = None
    n: int = 0
    method: str = ""
    reason: str = ""
    untrained: bool = False
    stays: bool = False
