"""Simulate the rule of judgement at its edges: how often it says a false word; and away from them: how often the right one.

python scripts/simulate_judgement.py [--draws 2000]

Writes docs/data/judgement_errors.csv, the tables of docs/judgements.md and sinkjax/analysis/t_errors.csv.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from sections import write_section

from sinkjax.analysis.evidence import Evidence, Rank
from sinkjax.analysis.intervals import generator
from sinkjax.analysis.judgement import LARGE, SMALL, T_ERRORS, supports, word_of
from sinkjax.analysis.mean_bounds import FEWEST_BOUNDED, betting_side, constant, crossed_side, t_side
from sinkjax.report.markdown import table as markdown

Array = NDArray[Any]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = Path("data") / "judgement_errors.csv"
SIZES, FEWER, MORE = (8, 16, 24, 64), (2, 4, 6, 12), (32, 128)  # documents; FEWER for the errors of t, MORE for power
STRONG, WEAKER, RELATIVE = 0.8, 0.3, 0.75  # true S where power is simulated
POSITIONS, CLUSTER, CONTROLS = 16, 4, 20  # positions in a crossed design, documents in a cluster, controls
ICC, RARE, FEW = 0.2, 0.04, 1 / 8
WORDS = ("replicates", "weaker", "shown", "differs", "undecided", "untested")
CASE = ("kind", "measure", "shape", "claim", "truth", "controls", "n", "samples", "method", "promised")
COLUMNS = (*CASE, "counted", "rate", "limit", *WORDS, "draws")


@dataclass(frozen=True)
class Measure:
    """Mean of the whole, spread of the contrast and of the whole, and the range of the measure."""

    whole: float
    spread: float
    jitter: float
    range: tuple[float, float] | None


MEASURES = {"bounded": Measure(0.5, 0.2, 0.1, (0.0, 1.0)), "unbounded": Measure(5.0, 1.5, 1.0, None)}


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers between -2.5 and 2.5."""
    return np.asarray(ndtri(rng.uniform(ndtr(-2.5), ndtr(2.5), shape)))


def lognormal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Lognormal numbers up to exp(2), minus their mean."""
    mean = math.exp(0.5) * ndtr(1.0) + math.exp(2.0) * ndtr(-2.0)
    return (np.minimum(np.exp(rng.standard_normal(shape)), math.exp(2.0)) - mean) / 2.2


def far(share: float) -> Draw:
    """Numbers with mean 0 and little spread, except a share that is far above the others."""
    return lambda rng, shape: 2.5 * ((rng.random(shape) < share) - share) + 0.05 * normal(rng, shape)


def mirrored(draw: Draw) -> Draw:
    """The same numbers with the other sign."""
    return lambda rng, shape: -draw(rng, shape)


SHAPES: dict[str, Draw] = {
    "normal": normal,
    "lognormal": lognormal,
    "lognormal below": mirrored(lognormal),
    "4% far above": far(RARE),
    "4% far below": mirrored(far(RARE)),
    "1 in 8 far above": far(FEW),
    "1 in 8 far below": mirrored(far(FEW)),
}
CROSSED = [f"crossed, {name}" for name in SHAPES if "lognormal" not in name]  # the shape of the documents' effects
CLUSTERED, ZERO = "ICC 0.2 in clusters", "zero but for 4%"
GAUSSIAN = ("normal", CLUSTERED, "crossed, normal")


@dataclass(frozen=True)
class Case:
    """One line of the simulation.

    Attributes:
        kind: "edge" if the truth is at an edge of the rule, or "power".
        measure: A key of `MEASURES`.
        shape: Distribution of the samples of D.
        claim: "effect", "stays", "no whole", or "relative": an effect on the measure that is the whole, with the paper's sign -1.
        share: True S; for "no whole", true D as a share of the measure's mean.
        n: Documents.
        controls: "none"; "20", whose true effect is 0; or "20 and one more": the contrast is drawn as the controls are, each with
            an effect of its own.
    """

    kind: str
    measure: str
    shape: str
    claim: str
    share: float
    n: int
    controls: str = "none"

    @property
    def counted(self) -> tuple[str, ...]:
        """The words that are false; if power is simulated, the right words."""
        if self.kind == "power":
            weaker = self.share == WEAKER and self.claim != "no whole"
            return ("weaker",) if weaker else ("replicates",) if self.share or self.claim == "stays" else ("differs",)
        if self.claim == "no whole":
            return ("replicates", "weaker", "shown", "differs")
        if abs(self.share) == LARGE:
            return ("replicates", "weaker", "differs")
        return ("replicates", "differs") if self.share else ("replicates", "weaker", "shown")

    @property
    def truth(self) -> str:
        """The true value as text."""
        return f"D = {self.share * MEASURES[self.measure].whole:g}" if self.claim == "no whole" else f"S = {self.share:g}"

    @property
    def samples(self) -> int:
        """Independent samples."""
        if self.shape == CLUSTERED:
            return self.n // CLUSTER
        return min(self.n, POSITIONS) if self.shape in CROSSED else self.n

    @property
    def method(self) -> str:
        """The interval that judges samples with spread."""
        if self.shape in CROSSED:
            return "two-way t"
        return "betting" if self.measure == "bounded" and self.samples >= FEWEST_BOUNDED else "t"

    @property
    def promised(self) -> bool:
        """Whether 5% of false words is promised: by bets for every shape, by t for normal samples."""
        return self.method == "betting" or self.shape in GAUSSIAN


def cases(sizes: Iterable[int] = SIZES, fewer: Iterable[int] = FEWER, more: Iterable[int] = MORE) -> Iterator[Case]:
    """Every line of the simulation: edges at `sizes` and, for the errors of t, at `fewer`; power at `sizes` and `more`."""
    sizes, fewer, more = tuple(sizes), tuple(fewer), tuple(more)
    three = [("effect", share) for share in (0.0, SMALL, LARGE)]
    edges = [*three, ("no whole", 0.0), *[("stays", share) for share in (-LARGE, -SMALL, SMALL, LARGE)]]
    powers = [("effect", STRONG), ("effect", WEAKER), ("effect", 0.0), ("stays", 0.0), ("no whole", WEAKER)]
    for measure, facts in MEASURES.items():
        bounded = facts.range is not None  # sizes without a bound are lognormal, so normal in logarithms
        names = [name for name in (*SHAPES, *CROSSED, *[ZERO] * bounded) if bounded or "lognormal" not in name]
        for shape in names:
            wanted = [edge for edge in edges if shape != ZERO or edge[0] != "no whole"]
            yield from (Case("edge", measure, shape, *edge, n) for n in (*sizes, *fewer) for edge in wanted)
        yield from (Case("edge", measure, CLUSTERED, *edge, n) for n in sizes for edge in edges)
        if bounded:
            wanted = [("relative", share) for _, share in three]
            yield from (Case("edge", measure, shape, *edge, n) for shape in SHAPES for n in sizes for edge in wanted)
        for shape in ("normal", "4% far above", "4% far below"):
            yield from (Case("edge", measure, shape, *edge, n, "20") for n in sizes for edge in three)
        yield from (Case("edge", measure, "normal", "effect", 0.0, n, "20 and one more") for n in sizes)
        for n in (*sizes, *more):
            yield from (Case("power", measure, shape, *power, n) for shape in GAUSSIAN for power in powers)
            yield Case("power", measure, "normal", "effect", STRONG, n, "20")
            if bounded:
                yield from (Case("power", measure, "lognormal", *power, n) for power in powers)
                yield Case("power", measure, "normal", "relative", RELATIVE, n)


@dataclass(frozen=True)
class Samples:
    """The samples of many draws: float[draw, n] or float[draw, n, position]; controls float[draw, control, n]."""

    contrast: Array
    whole: Array | None
    controls: Array | None
    clusters: Array | None
    sign: int


def drawn(case: Case, draws: int, rng: np.random.Generator) -> Samples:
    """Samples of a case, whose true mean of D is exactly `share` times the true mean of W."""
    measure, n = MEASURES[case.measure], case.n
    crossed = case.shape in CROSSED
    size = (draws, n, POSITIONS) if crossed else (draws, n)
    whole = measure.whole + measure.jitter * normal(rng, size)
    clusters = np.arange(n) // CLUSTER if case.shape == CLUSTERED else None
    if case.shape == ZERO:
        mean = RARE / abs(case.share) if case.share else 0.4  # so that the few samples are at the end of the range
        whole = mean * (1 + 0.3 * normal(rng, size))
        hit = rng.random(size) < RARE
        way = np.sign(case.share) if case.share else rng.choice([-1.0, 1.0], size)
        return Samples(way * hit, whole, None, None, 1)
    if crossed:
        documents = SHAPES[case.shape.removeprefix("crossed, ")](rng, (draws, n, 1))
        part = ICC if case.promised else 1 - 2 * ICC  # an unusual document is unusual at all its positions
        parts = ((part, documents), (ICC, normal(rng, (draws, 1, POSITIONS))), (1 - ICC - part, normal(rng, size)))
        found = 0.6 * sum(math.sqrt(share) * numbers for share, numbers in parts)  # so that all of it fits the range
    elif clusters is not None:
        effects = normal(rng, (draws, clusters[-1] + 1))
        found = 0.8 * (math.sqrt(ICC) * effects[:, clusters] + math.sqrt(1 - ICC) * normal(rng, size))
    else:
        found = SHAPES[case.shape](rng, size)
    contrast = case.share * measure.whole + measure.spread * found
    if case.claim == "relative":  # the edited value, around its mean, minus the unedited one
        edited = (1 - case.share) * measure.whole - 0.2 * measure.spread * found
        return Samples(edited - whole, whole, None, None, -1)
    controls = None
    if case.controls == "20":
        controls = 0.5 * measure.spread * normal(rng, (draws, CONTROLS, n))
    elif case.controls != "none":
        effects = 0.8 * measure.spread * normal(rng, (draws, CONTROLS + 1, 1))
        arms = effects + 0.2 * measure.spread * normal(rng, (draws, CONTROLS + 1, n))
        contrast, controls = arms[:, 0], arms[:, 1:]
    return Samples(contrast, None if case.claim == "no whole" else whole, controls, clusters, 1)


def evidence(case: Case, samples: Samples, draw: int) -> Evidence:
    """One draw as the evidence that `judge` takes."""
    whole, controls = (None if found is None else found[draw] for found in (samples.whole, samples.controls))
    return dataclasses.replace(
        _bounds(case), contrast=samples.contrast[draw], controls=controls, whole=whole, clusters=samples.clusters
    )


def _bounds(case: Case) -> Evidence:
    return Evidence(np.zeros(1), range=MEASURES[case.measure].range, relative=case.claim == "relative")


def words(case: Case, samples: Samples) -> Array:
    """The word on each draw, as `judge` says it one by one: str[draw]."""
    d = samples.sign * samples.contrast
    above = np.ones(len(d), bool)
    if samples.controls is not None:
        lower = samples.controls.mean(-1) < samples.contrast.mean(-1)[:, None]
        above = np.array([Rank(int(below), 0, lower.shape[1]).above for below in lower.sum(-1)])
        d = d - samples.controls.mean(1)
    w = np.ones_like(d) if samples.whole is None else samples.whole
    ranges = supports(_bounds(case), samples.sign, d, samples.whole)
    if samples.clusters is not None:
        d, w = (found.reshape(len(found), -1, CLUSTER).mean(-1) for found in (d, w))
    one = np.ones_like(d)
    sides = [_sides(d, one, ranges[0], 0.0, case)]
    if samples.whole is not None:
        cuts = (-LARGE, -SMALL, SMALL, LARGE)
        sides += [_sides(w, one, ranges[1], 0.0, case), *(_sides(d, w, ranges[2], c, case) for c in cuts)]
    sides[0] = np.where((sides[0] > 0) & ~above, 0, sides[0])
    patterns, members = np.unique(np.stack(sides, -1), axis=0, return_inverse=True)
    return np.array([_word(pattern, case.claim == "stays") for pattern in patterns.tolist()])[members.ravel()]


def _word(pattern: list[int], stays: bool) -> str:
    if len(pattern) == 1:
        return word_of(pattern[0], None, stays)
    d, w, *s = pattern
    return word_of(d, dict(zip((-LARGE, -SMALL, SMALL, LARGE), s, strict=True)).__getitem__, stays) if w > 0 else "untested"


def _sides(d: Array, w: Array, support: Callable[[float], tuple[float, float]] | None, c: float, case: Case) -> Array:
    """Whether the mean of D - c W is above 0 (1), below 0 (-1), or neither is shown: int[draw]."""
    values = d - c * w
    if case.shape in CROSSED:
        return crossed_side(values)
    if case.method == "betting":
        assert support is not None
        return betting_side(values, *support(c))
    same = constant(d, w)
    return np.where(same, 0 if support is None else betting_side(values, *support(c)), t_side(values))


def simulated(case: Case, draws: int, seed: int = 0) -> dict[str, Any]:
    """One line of the table: how often each word is said."""
    said = words(case, drawn(case, draws, generator(seed, str(dataclasses.astuple(case)))))
    rates = {word: float(np.mean(said == word)) for word in WORDS}
    rate = sum(rates[word] for word in case.counted)
    limit = 0.05 + 2 * math.sqrt(0.05 * 0.95 / draws) if case.kind == "edge" else ""
    line = {name: getattr(case, name) for name in CASE}
    line["promised"] = "yes" if case.promised else "no"
    return line | {"counted": " ".join(case.counted), "rate": rate, "limit": limit, **rates, "draws": draws}


def as_csv(lines: Iterable[Mapping[str, Any]], columns: Iterable[str] = COLUMNS) -> str:
    """Lines as CSV, with rates to four digits."""
    out = io.StringIO()
    table = csv.DictWriter(out, list(columns), lineterminator="\n")
    table.writeheader()
    for line in lines:
        table.writerow({name: f"{value:.4g}" if isinstance(value, float) else value for name, value in line.items()})
    return out.getvalue()


def t_errors(lines: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The false words of t: on normal samples, and on the least favourable shape, each at its least favourable edge."""
    found: dict[tuple[str, str, int], dict[str, float]] = {}
    for line in lines:
        if line["kind"] == "edge" and line["method"] != "betting" and line["controls"] == "none" and line["shape"] != CLUSTERED:
            rates = found.setdefault((line["method"], line["measure"], int(line["samples"])), {"normal": 0.0, "worst": 0.0})
            for name in ("normal", "worst") if line["shape"] in GAUSSIAN else ("worst",):
                rates[name] = max(rates[name], float(line["rate"]))
    return [dict(zip(("method", "measure", "n"), key, strict=True)) | rates for key, rates in sorted(found.items())]


def tables(lines: Iterable[Mapping[str, Any]]) -> str:
    """The part of the page that is made of numbers: false words by shape, the check of the promise, and power."""
    lines = list(lines)
    edges = [line for line in lines if line["kind"] == "edge"]
    draws = int(edges[0]["draws"])
    worst: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {}
    for line in edges:
        controls = "" if line["controls"] == "none" else f", controls: {line['controls']}"
        row = worst.setdefault(line["shape"].removesuffix(" above").removesuffix(" below") + controls, {})
        place = (line["measure"], int(line["n"]))
        row[place] = max(row.get(place, line), line, key=lambda one: float(one["rate"]))
    columns = [(measure, n) for measure in MEASURES for n in SIZES]
    false = [(shape, *(_cell(row.get(place)) for place in columns)) for shape, row in worst.items()]
    promised = [line for line in edges if line["promised"] == "yes"]
    beyond = sum(float(line["rate"]) > float(line["limit"]) for line in promised)
    single = max(
        float(line[word]) for line in promised for word in ("replicates", "shown", "differs") if word in line["counted"].split()
    )
    power: dict[tuple[str, str, str], dict[int, Mapping[str, Any]]] = {}
    for line in lines:
        design = POWERS.get((line["measure"], line["shape"], line["controls"]))
        if line["kind"] == "power" and design and line["claim"] != "relative":
            power.setdefault((design, f"{line['claim']}, {line['truth']}", line["counted"]), {})[int(line["n"])] = line
    counts = sorted({n for row in power.values() for n in row})
    right = [(*key, *(_cell(row.get(n)) for n in counts)) for key, row in power.items()]
    return "\n\n".join(
        (
            f"False words at the least favourable edge, in {draws:,} draws of n documents (t: by Student's t; else by bets):",
            markdown(("samples of D", *(f"{measure}, n = {n}" for measure, n in columns)), false),
            f"The 5% are guaranteed in {len(promised)} of {len(edges)} lines: for bets, and for normal samples. {beyond} of these"
            f" exceed 5% by more than two standard errors of the simulation; no single wrong word exceeds {single:.1%} in them.",
            "Right words away from the edges, for normal samples:",
            markdown(("measure", "claim, truth", "right word", *(f"n = {n}" for n in counts)), right),
        )
    )


POWERS = {
    ("bounded", "normal", "none"): "bounded",
    ("bounded", "crossed, normal", "none"): "bounded, at 16 positions",
    ("unbounded", "normal", "none"): "unbounded",
}


def _cell(line: Mapping[str, Any] | None) -> str:
    if line is None:
        return ""
    return f"{100 * float(line['rate']):.1f}{' t' if line['method'] != 'betting' else ''}"


def main(docs: Path = DOCS, errors: Path = T_ERRORS, draws: int = 2000, chosen: Iterable[Case] | None = None) -> None:
    """Simulate, and write the lines, the errors of t and the tables of the page."""
    lines = [simulated(case, draws) for case in (cases() if chosen is None else chosen)]
    (docs / DATA).parent.mkdir(parents=True, exist_ok=True)
    (docs / DATA).write_text(as_csv(lines), encoding="utf-8")
    errors.write_text(as_csv(t_errors(lines), ("method", "measure", "n", "normal", "worst")), encoding="utf-8")
    write_page(docs)


def write_page(docs: Path = DOCS) -> None:
    """Write the tables of the page from the lines."""
    with (docs / DATA).open(encoding="utf-8") as file:
        write_section(docs / "judgements.md", "judgement errors", tables(csv.DictReader(file)), "# How claims are judged")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2000, help="simulated sets of samples for each line")
    main(draws=parser.parse_args().draws)
