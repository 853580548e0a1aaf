"""Simulate the rule of judgement: how often it says a false word, the right one, or takes one back after one more sample.

python scripts/simulate_judgement.py [--draws 1000]

Writes docs/results/data/judgement_errors.csv.xz and the tables of docs/judgements.md.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import lzma
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from long_tables import as_text
from numpy.typing import NDArray
from sections import write_section

from sinkjax.analysis.evidence import ContrastRank
from sinkjax.analysis.intervals import generator
from sinkjax.analysis.judgement import SMALL, word_of
from sinkjax.analysis.mean_bounds import constant, crossed_side, t_side
from sinkjax.config_files.files import write
from sinkjax.report.markdown import table as markdown

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = Path("results/data") / "judgement_errors.csv.xz"
SIZES = (8, 16, 24, 32, 52, 64, 128)
WHOLE, JITTER, SPREADS = 0.5, 0.05, (0.02, 0.2)  # W, its spread, and the spreads of D
RARE, FEW, ICC, CLUSTER, CONTROLS = 0.05, 1 / 8, 0.5, 3, 20
MOST = 0.07  # false words
WORDS = ("replicates", "opposite", "absent", "moves", "undecided")


def far(share: float) -> Draw:
    """Numbers with mean 0 and little spread, except a share that is far above the others."""
    return lambda rng, shape: 2.5 * ((rng.random(shape) < share) - share) + 0.05 * rng.standard_normal(shape)


def clustered(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Means of articles of three documents each, which have half of their variance in common; `shape` counts the articles."""
    common, own = rng.standard_normal((*shape, 1)), rng.standard_normal((*shape, CLUSTER))
    return (math.sqrt(ICC) * common + math.sqrt(1 - ICC) * own).mean(-1)


def undeclared(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Documents in groups of three, which have half of their variance in common and are judged as if they were independent."""
    common = np.repeat(rng.standard_normal((shape[0], -(-shape[1] // CLUSTER))), CLUSTER, axis=1)[:, : shape[1]]
    return math.sqrt(ICC) * common + math.sqrt(1 - ICC) * rng.standard_normal(shape)


def crossed(positions: int, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Documents by positions, each with an effect of its own."""
    sizes = ((*shape, 1), (shape[0], 1, positions), (*shape, positions))
    return np.asarray(sum(math.sqrt(part) * rng.standard_normal(size) for part, size in zip((0.4, 0.2, 0.4), sizes, strict=True)))


SHAPES: dict[str, Draw] = {  # mean 0
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "three documents an article": clustered,
    "16 positions a document": partial(crossed, 16),
    "4 positions a document": partial(crossed, 4),
    "undeclared groups of three": undeclared,
    "exponential": lambda rng, shape: rng.exponential(size=shape) - 1,
    "lognormal": lambda rng, shape: np.exp(rng.standard_normal(shape)) - math.exp(0.5),
    "80% zeros": lambda rng, shape: 2.5 * ((rng.random(shape) < 0.2) - 0.2),
    "gamma of shape 0.1": lambda rng, shape: (rng.gamma(0.1, size=shape) - 0.1) / math.sqrt(0.1),
    "80% zeros, in proportion to W": lambda rng, shape: 2.5 * ((rng.random(shape) < 0.2) - 0.2),
    "80% zeros, then exponential": lambda rng, shape: (rng.random(shape) < 0.2) * rng.exponential(size=shape) - 0.2,
    "1 in 8 far": far(FEW),
    "5% far": far(RARE),
    "95% zeros, bounded": lambda rng, shape: (rng.random(shape) < RARE).astype(float),  # the others are at the end of the range
}
BOUNDED = "95% zeros, bounded"
CROSSED = ("16 positions a document", "4 positions a document")
SYMMETRIC = ("normal", "three documents an article", *CROSSED, "undeclared groups of three")
PROPORTIONAL = "80% zeros, in proportion to W"


@dataclass(frozen=True)
class Case:
    """One line of the simulation.

    Attributes:
        kind: "false" (the truth is 0 or at the edge), "right" (it is not), or "undone" (decided for n samples, not for n + 1).
        shape: Of the samples of D, by name.
        claim: "effect", "stays" or "no whole".
        share: True S; for "no whole", true D.
        spread: Of D.
        way: 1 if the long tail is above the others, -1 if below.
        controls: "none"; "20", whose true effect is 0; "and one more": the contrast is drawn as 20 controls are.
        n: Independent samples.
    """

    kind: str
    shape: str
    claim: str
    share: float
    spread: float
    way: int
    controls: str
    n: int

    @property
    def false(self) -> tuple[str, ...]:
        """The false words."""
        if self.controls == "and one more":
            return ("replicates",)  # "opposite" is as frequent
        if self.claim == "stays":
            return ("replicates", "moves") if self.share else ("moves",)
        return ("replicates", "opposite", "absent") if self.share else ("replicates", "opposite")

    @property
    def right(self) -> str:
        """The right word."""
        return "replicates" if self.share or self.claim == "stays" else "absent"


def cases(sizes: Iterable[int] = SIZES) -> Iterator[Case]:
    """Every line of the simulation."""
    edges = [("effect", 0.0), ("effect", SMALL), ("no whole", 0.0), ("stays", 0.0), ("stays", SMALL)]
    shares = (0.0, SMALL, 0.3, 0.95)
    for n, shape in itertools.product(sizes, SHAPES):
        ways = (1,) if shape in SYMMETRIC or shape == BOUNDED else (1, -1)
        for spread, way in itertools.product(SPREADS, ways):
            used = [edge for edge in edges if shape != BOUNDED or edge[1] or edge[0] == "effect"]
            yield from (Case("false", shape, *edge, spread, way, "none", n) for edge in used)
            if shape not in (*SYMMETRIC[1:], BOUNDED):
                yield from (Case("false", shape, "effect", share, spread, way, "20", n) for share in (0.0, SMALL))
            if shape not in CROSSED:
                yield from (Case("undone", shape, "effect", share, spread, way, "none", n) for share in shares)
        if shape in SYMMETRIC:
            rights = (("effect", 0.95), ("effect", 0.3), ("effect", 0.0), ("stays", 0.0))
            yield from (Case("right", shape, *one, spread, 1, "none", n) for spread in SPREADS for one in rights)
    yield from (Case("false", "normal", "effect", 0.0, 0.2, 1, "and one more", n) for n in sizes)


def drawn(case: Case, draws: int, n: int, rng: np.random.Generator) -> tuple[Array, Array, Array | None]:
    """Samples of D plus the mean of its controls, of W, and of the controls; the true mean of D is `share` times that of W."""
    whole = WHOLE + JITTER * rng.standard_normal((draws, n))
    found = SHAPES[case.shape](rng, (draws, n))
    if case.shape == BOUNDED:  # 5% at the end of the range are 1/10 of a whole of 1/2
        if not case.share:
            return found * rng.choice([-1.0, 1.0], found.shape), whole, None
        return found, whole * RARE / (WHOLE * case.share), None
    if case.shape in CROSSED:
        whole = np.repeat(whole[..., None], found.shape[-1], -1)
    if case.shape == PROPORTIONAL and case.claim != "no whole":
        whole = WHOLE * rng.exponential(size=whole.shape)
        found = found * whole / WHOLE
    scale = 1.0 if case.claim == "no whole" else WHOLE
    level = whole if case.shape == PROPORTIONAL else scale
    contrast = case.share * level + case.spread * case.way * found
    if case.controls == "20":
        return contrast, whole, 0.5 * case.spread * rng.standard_normal((draws, CONTROLS, n))
    if case.controls == "and one more":
        arms = rng.standard_normal((draws, CONTROLS + 1, 1)) + 0.2 * rng.standard_normal((draws, CONTROLS + 1, n))
        return case.spread * arms[:, 0], whole, case.spread * arms[:, 1:]
    return contrast, whole, None


def words(case: Case, contrast: Array, whole: Array, controls: Array | None) -> list[str]:
    """The word on each draw, as `judge` says it one by one."""
    beyond = np.ones((len(contrast), 2), bool)
    d = contrast
    if controls is not None:
        lower = (controls.mean(-1) < contrast.mean(-1)[:, None]).sum(1)
        beyond = np.array([[ContrastRank(int(one), 0, CONTROLS).above for one in (below, CONTROLS - below)] for below in lower])
        d = contrast - controls.mean(1)
    share = case.claim != "no whole"
    if share:
        low, high = (_sides(d, whole, c, case) for c in (-SMALL, SMALL))
    else:
        low = high = _sides(d, np.ones_like(d), 0.0, case)
    least, most = (low > 0).astype(int) + (high > 0), (low < 0).astype(int) + (high < 0)
    place = np.array([-2 * SMALL, 0.0, 2 * SMALL])
    both = zip(place[least], -place[most], beyond.tolist(), strict=True)
    return [word_of(a, b, share, case.claim == "stays", (up, down)) for a, b, (up, down) in both]


def _sides(d: Array, w: Array, c: float, case: Case) -> Array:
    """Whether the mean of D - c W is above 0 (1), below 0 (-1), or neither is shown: int[draw]."""
    if case.shape in CROSSED:
        return np.array([crossed_side(one) for one in d - c * w])
    alike, end = constant(d, w), c * w.mean(-1)
    largest = 1.0 if case.shape == BOUNDED else math.inf
    with np.errstate(invalid="ignore"):
        return np.where(alike, t_side(d - c * w, (-largest - end, largest - end)), t_side(d - c * w))


def simulated(case: Case, draws: int) -> dict[str, Any]:
    """One line of the table: how often each word is said, and the rate that its kind is about."""
    draws = draws // 8 if case.shape in CROSSED else draws
    sample = drawn(case, draws, case.n + (case.kind == "undone"), generator(0, str(astuple(case))))
    if case.kind == "undone":
        now, then = (words(case, *(one if one is None else one[..., :n] for one in sample)) for n in (case.n, case.n + 1))
        rate = np.mean([a != "undecided" and b == "undecided" for a, b in zip(now, then, strict=True)])
    else:
        now = words(case, *sample)
        rate = np.mean([word in case.false if case.kind == "false" else word == case.right for word in now])
    line = {one.name: getattr(case, one.name) for one in fields(case)}
    return line | {"rate": float(rate), **{word: now.count(word) / draws for word in WORDS}, "draws": draws}


def tables(lines: Iterable[Mapping[str, Any]]) -> str:
    """The part of the page that is made of numbers: false words by shape, decisions that are undone, and power."""
    lines = list(lines)
    sizes = sorted({int(line["n"]) for line in lines})

    def rows(kind: str, name: Callable[[Mapping[str, Any]], tuple[str, ...]], unseen: bool = False) -> list[list[str]]:
        worst: dict[tuple[str, ...], dict[int, float]] = {}
        for line in (one for one in lines if one["kind"] == kind and (kind != "right" or one["shape"] == SYMMETRIC[0])):
            row = worst.setdefault(name(line), dict.fromkeys(sizes, 0.0))
            row[int(line["n"])] = max(row[int(line["n"])], float(line["rate"]))
        found = []
        for key, row in worst.items():
            enough = next((n for n in sizes if all(row[more] <= MOST for more in sizes if more >= n)), None)
            found.append([*key, *(f"{100 * row[n]:.1f}" for n in sizes), *([str(enough or "-")] if unseen else [])])
        return found

    def shape(line: Mapping[str, Any]) -> tuple[str, ...]:
        more = {"none": "", "20": ", 20 controls", "and one more": ", 20 controls and one more like them"}
        return (f"{line['shape']}{more[line['controls']]}",)

    def truth(line: Mapping[str, Any]) -> tuple[str, ...]:
        word = Case(**{one.name: line[one.name] for one in fields(Case)} | {"share": float(line["share"])}).right
        return (line["shape"], f"{line['claim']}, S = {float(line['share']):g}, spread {line['spread']}", word)

    columns = [f"n = {n}" for n in sizes]
    return "\n\n".join(
        (
            f"False verdicts (%), at the worst of all truths, claims, spreads and tails, in {lines[0]['draws']} draws, and from"
            f" which n they are at most {MOST:.0%}:",
            markdown(("samples of D", *columns, f"{MOST:.0%} from n ="), rows("false", shape, unseen=True)),
            "Decided for n samples and undecided for n + 1 (% of all draws, at the worst of all truths):",
            markdown(("samples of D", *columns), rows("undone", shape)),
            "Right verdicts (%):",
            markdown(("samples of D", "claim, truth", "verdict", *columns), rows("right", truth)),
        )
    )


def main(docs: Path = DOCS, draws: int = 1000, chosen: Iterable[Case] | None = None) -> None:
    """Simulate, and write the lines and the tables of the page."""
    lines = [simulated(case, draws) for case in (cases() if chosen is None else chosen)]
    rows = [[f"{value:.4g}" if isinstance(value, float) else value for value in line.values()] for line in lines]
    write(docs / DATA, lzma.compress(as_text([*lines[0]], rows).encode(), preset=9))
    write_page(docs)


def write_page(docs: Path = DOCS) -> None:
    """Write the tables of the page from the lines."""
    with lzma.open(docs / DATA, "rt", encoding="utf-8") as file:
        write_section(docs / "judgements.md", "judgement errors", tables(csv.DictReader(file)), "# How claims are judged")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=1000, help="simulated sets of samples for each line")
    main(draws=parser.parse_args().draws)
