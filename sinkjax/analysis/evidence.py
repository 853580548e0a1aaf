"""Records of the one rule: the evidence on a claim, and the judgement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from sinkjax.analysis.intervals import Interval

RANK = 0.95  # a contrast above this share of its controls is above the controls
Array = NDArray[Any]
Word = Literal["replicates", "weaker", "shown", "differs", "undecided", "untested", "holds", "fails"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """The numbers that decide a claim.

    Attributes:
        contrast: float[n], the paper's contrast in each document or seed, or float[n, p], in each position too (documents and
            positions are then crossed clusters). A sample that is not finite here, in a control or in `whole` is left out.
        controls: float[m, n'] or float[m, n', p], the same contrast under each matched control, in the first n' <= n documents;
            only these documents count then.
        whole: float[n] or float[n, p], the denominator of the effect's size; None: the claim is judged without a size.
        range: Lowest and highest possible value of the contrast's measure, such as (0, 1) for a sink
            rate; None: there is no bound, and the numbers are logarithms.
        clusters: int[n] or str[n], such as the genre or the article of each document; each cluster then counts as one sample, the
            mean of its documents. None: documents are independent.
        samples: The noun for samples in text, "documents" or "seeds".
        all_controls: Whether there are no more controls than these.
        relative: Whether contrast + whole is the edited value of the measure, that is, `whole` is the unedited value that the
            contrast subtracts. It makes the interval shorter.
        whole_range: Lowest and highest possible value of `whole`; None: `range`. For a whole that is a difference (a loss that is
            recovered), -(high - low) and high - low.
    """

    contrast: Array
    controls: Array | None = None
    whole: Array | None = None
    range: tuple[float, float] | None = None
    clusters: Array | None = None
    samples: str = "documents"
    all_controls: bool = False
    relative: bool = False
    whole_range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Rank:
    """How many of `of` controls have a mean below the contrast's mean (after the sign), and how many an equal one.

    spread: lowest and highest mean of a control minus the mean of all controls, in the unit of D; None: there is no finite one.
    """

    below: int
    tied: int
    of: int
    spread: tuple[float, float] | None = field(default=None, compare=False)

    @property
    def above(self) -> bool:
        """Whether the contrast lies above the controls."""
        return self.below >= self.needed

    @property
    def needed(self) -> int:
        """How many controls must lie below: 95% of controls and contrast, so that 5% of further controls pass; at most all."""
        return min(self.of, math.ceil(RANK * (self.of + 1) - 1e-9))


@dataclass(frozen=True)
class Judgement:
    """The word on a claim, and the numbers that decided it.

    Attributes:
        word: The word.
        D, S, W: Contrast minus its controls, its share of the whole, and the whole, with intervals; None where not computed.
        rank: Among the controls; None without controls.
        n: Independent samples: documents, seeds or clusters; if crossed, the fewer of documents and positions.
        method: How the intervals were computed, as text.
        reason: The number that decided against "replicates" and the line that it met or missed, and a sentence if few samples
            without spread decided; else "".
        error: Simulated rates of false words on normal samples and on the least favourable shape of data, if Student's t judged;
            else None.
        untrained: Whether the untrained twin shows the same.
        stays: Whether the claim says that something stays as it is.
    """

    word: Word
    D: Interval | None = None
    S: Interval | None = None
    W: Interval | None = None
    rank: Rank | None = None
    n: int = 0
    method: str = ""
    reason: str = ""
    error: tuple[float, float] | None = None
    untrained: bool = False
    stays: bool = False

    @property
    def printed(self) -> str:
        """The word, with "(untrained too)" where the untrained twin shows the same."""
        return f"{self.word} (untrained too)" if self.untrained else self.word
