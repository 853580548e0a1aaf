"""The numbers that pages name, from the tables in docs/results/data.

{study.claim@model} is the share of a claim, {study.claim@model:effect} its effect, {study.claim@model=absent} a share whose
word, by the present rule, must be that one, and {study.claim@model=absent:word} only a check of the word.
{study[edit][measure]@model} is from a run's summary, {study[edit][measure]@model:change} its effect. {scan/model/column} is
from scan/models.csv, {scan/model/share} the share of the vocabulary that was run. {predictions/model/what} counts
predictions/model: "all", "sinks", "others" (no sink predicted), "right", "wrong", "others-right" or "measured" (sinks), perhaps
behind an intervention and "/", or "share", their mean share of the first key's attention, or "least", the activation alone of
the wrong one that has least. {emergence/model/measure}, and {emergence/model/measure/effect}, are from emergence/summary.csv,
{in-use/model/way} from in-use.csv.xz; with a second way, the share of the added loss that this one saves.
{speed/section/measure} is from benchmarks.csv with its smallest and largest, its value, share of the peer's time and missed
goals behind ":value", ":time" and ":missed", and three cells of a table behind ":row"; with stars it is the span of all that
match. {340k/row} is how much a row takes from the softmax's sink, {sooner/row} the share of the steps after which it has the
softmax's last loss, {card/model} a printed sink card, {card/model/headings} the beginnings of its lines of these, and
{file; table; row; column; .2f} a cell of a table of scripts/long_tables.py.
"""

from __future__ import annotations

import csv
import functools
import gzip
import lzma
import math
import re
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import kept_logs
import numpy as np
from numpy.typing import NDArray
from rejudge import worded

from sinkjax.analysis import intervals
from sinkjax.analysis.estimates import in_digits

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = "results/data"
CLAIMS = f"{DATA}/claims.csv"
SUMMARY = "protocol/summary.csv.xz"  # of every run, in that folder
Row = Mapping[str, str]


class Condition(NamedTuple):
    """A model, the token before each document (`none`, `model` or an id) and the text."""

    model: str
    bos: str = ""
    text: str = ""


SMOL, GEMMA = Condition("smollm2-135m", "none", "wikitext"), Condition("gemma3-270m", "model", "wikitext")
TRAINED = Condition("")  # models that a study trains
MINIS = {Condition(f"mini-{kind}", "model", "wikitext"): f"mini-{kind}" for kind in ("softmax", "head-norm")}
MODELS = {
    "smollm": SMOL,
    "gemma": GEMMA,
    "qwen": Condition("qwen2.5-coder-0.5b", "none", "wikitext"),
    "gemma-without": GEMMA._replace(bos="none"),
    "smollm-behind": SMOL._replace(bos="0"),
    "trained": TRAINED,
    **{name: given for given, name in MINIS.items()},
}
MOST = 300  # percent; a share beyond says that the whole is nearly 0
EDGES = (10,)  # percent, of the rule
CONTROLS = ("context", "permuted")  # interventions of kiya/predictions that are controls
STORE = "2026-11-27"  # since when sweeps write as they do now


class Named:
    """The numbers of a folder of documentation. ends: whether intervals are printed. Errors: a number that is not there."""

    def __init__(self, docs: Path = DOCS, /, ends: bool = True, **others: str):
        self.docs, self.data, self.ends, self.others = docs, docs / DATA, ends, others

    def __call__(self, name: str, which: str = "") -> str:
        if name in self.others:
            return self.others[name]
        if ";" in f"{name}{which}":
            name, which = " ".join(f"{name}:{which}".removesuffix(":").split()), ""  # a row's name may have a colon
        where, _, rest = name.partition("/")
        look = {
            "340k": self.taken,
            "left": self.left,
            "sooner": self.sooner,
            "emergence": self.emerged,
            "in-use": self.in_use,
            "card": self.card,
            "scan": self.scanned,
            "speed": functools.partial(self.sped, which=which),
            "predictions": self.predicted,
        }.get(where)
        try:
            text = self.in_table(name) if ";" in name else look(rest) if look else self.of_run(name, which)
        except (LookupError, ValueError, FileNotFoundError):
            raise SystemExit(f"the tables in {self.data} have no number {{{name}}}") from None
        before, _, after = text.partition(" [")
        return text if self.ends else before + after.partition("]")[2]

    def of_run(self, name: str, which: str) -> str:
        """A number of a claim, or of a summary."""
        place, _, model = name.rpartition("@")
        if "[" in place:
            study, _, rest = place.partition("[")
            edit, _, measure = rest.removesuffix("]").partition("][")
            return self.measured(study, edit, measure, MODELS[model], which)
        (study, claim), (model, _, word) = place.split("."), model.partition("=")
        row = self.claims[study, *MODELS[model], claim]
        if word and row["word"].partition(" (")[0] != word:
            raise SystemExit(f"the prose says that {study}, claim {claim!r} of {model}, {word}, but it says {row['word']!r}")
        match which:
            case "word":
                return ""
            case "untrained":
                return effect(row["unit"], row["twin_d"])
            case "whole":
                return effect("", row["whole"])
            case "n":
                return row["n"]
            case "effect":
                return effect(row["unit"], row["d"], row["d_low"], row["d_high"])
            case "opposite":
                return effect(row["unit"], *(str(-float(row[end])) for end in ("d", "d_high", "d_low")))
        return numbers(row)

    def measured(self, study: str, edit: str, measure: str, condition: Condition, which: str) -> str:
        """A number of the summary of a run."""
        summary = summaries(self.data / SUMMARY).get((study, condition), ())
        (row,) = (row for row in summary if (row["edit"], row["measure"]) == (edit, measure))
        if which == "opposite":
            return effect("", str(-float(row["mean"])))
        columns = ("effect_mean", "effect_low", "effect_high") if which == "change" else ("mean",)
        return effect("", *(row[column] for column in columns))

    @functools.cached_property
    def claims(self) -> dict[tuple[str, ...], Row]:
        """The table of claims by study, condition and claim, with words by the present rule."""
        return {key(row): worded(row) for row in table(self.docs / CLAIMS)}

    def scanned(self, name: str) -> str:
        """A number of the tokens that a model was scanned for."""
        model, column = name.split("/")
        (row,) = (row for row in table(self.data / "scan/models.csv") if row["model"] == model)
        if column == "share":
            return f"{int(row['tokens']) / int(row['vocabulary']):.0%}"
        return f"{float(row[column]):,.4g}" if "." in row[column] else f"{int(row[column]):,}"

    def predicted(self, name: str) -> str:
        """Return a number of predictions, or their mean share, or the least activation of a wrong one, in per cent."""
        model, *intervention, what = name.split("/")
        kept = "controls" if {*intervention} & {*CONTROLS} else "measured"
        rows = table(self.data / "predictions" / f"{model}-{kept}.csv")
        of = [row for row in rows if not intervention or row["prediction"].partition(",")[0] == intervention[0]]
        wrong = [row for row in of if row["right"] == "0"]
        if what == "share":
            return percent(str(mean(float(row["share_measured"]) for row in of)))
        if what == "largest":
            return percent(max((row["share_measured"] for row in of), key=float))
        if what == "least":
            return percent(min(row["ratio_alone"] for row in wrong))
        others = [row for row in of if row["sink_predicted"] == "0"]
        counts = {
            "all": len(of),
            "sinks": len(of) - len(others),
            "others": len(others),
            "right": len(of) - len(wrong),
            "wrong": len(wrong),
            "others-right": sum(row["right"] == "1" for row in others),
            "measured": sum(row["sink_measured"] == "1" for row in of),
        }
        return str(counts[what])

    def left(self, name: str) -> str:
        """How much of what a study's edits remove is left, from the least to the most; name: study or study.claim."""
        study, _, claim = name.partition(".")
        rows = [*table(self.data / "took.csv"), *table(self.docs / CLAIMS)]
        checks = [row["took"] for row in rows if row["study"] == study and row["claim"] == (claim or row["claim"])]
        shares = sorted(int(match[1]) for check in checks if (match := re.search(r", (\d+)% of .* may be left", check)))
        return " to ".join(dict.fromkeys((str(shares[0]), str(shares[-1])))) + "%"

    def taken(self, row: str) -> str:
        """The share of the softmax's sink that a row of the small model takes away."""
        contrast = f"share of token 1, mean over heads: softmax minus {row}"
        found = [each for each in table(self.data / "pretraining-340k-claims.csv") if each["contrast"] == contrast]
        return share(*shares_of(found[0]))

    def sooner(self, row: str) -> str:
        """The share of the steps after which a row of the small model has the softmax's last loss, paired by seed, or "never"."""
        last = {seed: losses[-1] for seed, (_, losses) in self.curves("softmax").items()}
        reached = {seed: curve for seed, curve in self.curves(row).items() if curve[1].min() <= last[seed]}
        if not reached:
            return "never"
        if len(reached) < len(self.curves(row)):
            raise ValueError(f"only seeds {', '.join(reached)} have it")
        at = [
            np.interp(-last[seed], -np.minimum.accumulate(losses), steps) / steps[-1] for seed, (steps, losses) in reached.items()
        ]
        found = intervals.interval(at)
        return share(*(str(value) for value in (found.mean, found.low, found.high)))

    def curves(self, row: str) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """The steps and held-out losses of a row of the small model, by seed."""
        logs = self.data / "trainings"
        runs = {name.rpartition("-")[2]: kept_logs.read(name, logs)[1] for name in kept_logs.names(f"340k/mini/{row}", logs)}
        return {
            seed: (np.array([x["step"] for x in run], float), np.array([x["loss"] for x in run])) for seed, run in runs.items()
        }

    def emerged(self, name: str) -> str:
        """A number of the study of emergence."""
        model, measure, *changed = name.split("/")
        rows = table(self.data / "emergence" / "summary.csv")
        (row, *_) = (row for row in rows if (row["model"], row["measure"]) == (model, measure))
        middle, low, high = (float(row["effect_" * bool(changed) + end]) for end in ("mean", "low", "high"))
        form = ",.0f" if abs(middle) >= 10 or low == high == 0 else ".1f" if abs(middle) >= 1 else ".3f"
        unit = "%" * (measure.endswith("(%)") and not changed)
        return f"{middle:{form}}{unit}" + f" [{low:{form}}, {high:{form}}]"

    def sped(self, name: str, which: str) -> str:
        """A number of a benchmark, or what belongs to it; with stars in its name, those of all that match."""
        section, measure = name.split("/", 1)
        rows = table(self.data / "benchmarks.csv")
        found = [row for row in rows if fnmatchcase(row["section"], section) and fnmatchcase(row["measure"], measure)]
        first, unit = found[0], "%" * measure.endswith("(%)")
        match which:
            case "value":
                return first["value"] + unit
            case "missed":
                return f"{sum(row['met'] == 'missed' for row in found)} of {sum(bool(row['goal']) for row in found)}"
            case "time":
                shares = sorted(100 / float(row["value"]) for row in found)
                return " to ".join(dict.fromkeys(f"{share:.0f}%" for share in (shares[0], shares[-1])))
            case "row":
                return " | ".join((span_of(found, unit), goal_of(found, unit), place_of(found)))
        return span_of(found, unit)

    def in_use(self, name: str) -> str:
        """How much a way to run a model adds to its loss, as it is; or the share of this that a second way saves."""
        model, *ways = name.split("/")
        rows = [row for row in table(self.data / "in-use.csv.xz") if (row["model"], row["edit"]) == (model, "as it is")]
        plain, *means = (
            mean(float(row["loss"]) for row in rows if row["way"] == way) for way in ("full precision, all keys", *ways)
        )
        added, *others = (each - plain for each in means)
        return f"{percent(str(1 - others[0] / added))}%" if others else f"{added:.3f}"

    def in_table(self, name: str) -> str:
        """A cell of a long table, with its interval or as text; a percent sign after its format is printed."""
        file, *cell, form = name.split("; ") if name.count(";") > 3 else [*name.split("; "), ""]
        (row,) = (one for one in table(self.data / f"{file}.csv") if [one["table"], one["row"], one["column"]] == cell)
        values = [float(row[end]) for end in ("mean", "low", "high") if row[end]]
        middle, *ends = [f"{one:z{form.rstrip('%')}}" if form else in_digits(one) for one in values] or [row["text"]]
        return middle + "%" * form.endswith("%") + (f" [{ends[0]}, {ends[1]}]" if ends else "")

    def card(self, name: str) -> str:
        """A printed sink card, or its lines of the headings behind the name."""
        model, _, headings = name.partition("/")
        lines = (self.data / f"card-{model}.txt").read_text(encoding="utf-8").splitlines()
        wanted = [line for heading in headings.split(", ") for line in lines if line.startswith(heading)]
        return "\n".join(["```text", *(map(clause, wanted) if headings else wanted), "```"])


def clause(line: str, width: int = 110) -> str:
    """The beginning of a line, up to the last comma or semicolon that fits and is in no brackets; a cut is marked."""
    if len(line) <= width:
        return line
    heads = [line[: mark.end()] for mark in re.finditer("[,;](?= )", line[:width])]
    return [head for head in heads if all(head.count(a) == head.count(b) for a, b in ("[]", "()"))][-1] + " …"


@functools.cache
def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, read once."""
    return read(path)


@functools.cache
def summaries(path: Path) -> dict[tuple[str, Condition], list[Row]]:
    """The summary of each run, by its study and condition."""
    found: dict[tuple[str, Condition], list[Row]] = {}
    for row in read(path):
        found.setdefault((row["study"], condition(row)), []).append(row)
    return found


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, which may be compressed."""
    opener = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with opener(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def key(row: Row) -> tuple[str, ...]:
    """Study, condition and claim of a row."""
    return row["study"], *condition(row), row["claim"]


def condition(stated: Mapping[str, object]) -> Condition:
    """The condition of a row, or of a run by its settings."""
    return Condition(*(str(stated.get(name, "")) for name in Condition._fields)) if stated.get("model") else TRAINED


def is_in(row: Row, columns: Collection[Condition]) -> bool:
    """Whether a row belongs to one of some conditions."""
    return condition(row) in columns


# Numbers of benchmarks as text.


def span_of(rows: Sequence[Row], unit: str) -> str:
    """A median with the smallest and largest round, or the smallest and largest of several medians."""
    (first, *others), values = rows, sorted((row["value"] for row in rows), key=float)
    if others:
        return " to ".join(dict.fromkeys(f"{value}{unit}" for value in (values[0], values[-1])))
    return first["value"] + unit + (f" ({first['low']} to {first['high']})" if first["low"] else "")


def goal_of(rows: Sequence[Row], unit: str) -> str:
    """The goals, whether one is missed, and the bound of a single number."""
    goals = " or ".join(dict.fromkeys(f"{row['goal']}{unit}" for row in rows if row["goal"])).replace("or at least ", "or ")
    missed = ", **missed**" * any(row["met"] == "missed" for row in rows)
    bound = f"bound {rows[0]['bound']}" * (len(rows) == 1 and bool(rows[0]["bound"]))
    return "; ".join(filter(None, (goals + missed, bound)))


def place_of(rows: Sequence[Row]) -> str:
    """Where and when something was measured."""
    devices, days = {row["device"] for row in rows}, sorted({row["date"] for row in rows})
    device = rows[0]["device"] if len(devices) == 1 else f"{len(devices)} processors"
    older = " (before the present store)"
    ends = [day + older * (day < STORE and any(map(sweeps, rows))) for day in dict.fromkeys((days[0], days[-1]))]
    return f"{device}, {' to '.join(ends)}"


def sweeps(row: Row) -> bool:
    """Whether a benchmark's number is about a sweep or a study, which write their results."""
    return "sweep" in row["measure"] or row["script"] == "bench_studies.py"


# Numbers of claims as text.


def numbers(row: Row) -> str:
    """The share of the whole with its interval, or the effect in its unit where the whole is missing or nearly 0."""
    return share(*shares_of(row)) if in_shares(row) else effect(row["unit"], row["d"], row["d_low"], row["d_high"])


def in_shares(row: Row) -> bool:
    """Whether an effect is best read as a share of its whole."""
    return bool(row["s"]) and not is_far(*shares_of(row))


def shares_of(row: Row) -> tuple[str, str, str]:
    """A share of the whole, and the ends of its interval."""
    return row["s"], row["s_low"], row["s_high"]


def is_far(*shares: str) -> bool:
    """Whether one of some shares is so large that the whole is nearly 0, and the effect itself says more."""
    return any(abs(float(one)) * 100 > MOST for one in shares if one)


def percent(value: str) -> str:
    """A share in percent."""
    return f"{100 * float(value):z.0f}"


def share(middle: str, low: str, high: str) -> str:
    """A share in percent with its interval; one more digit for an end that rounds to an edge of the rule."""
    ends = [precise(one) for one in (low, high)] if low and high else []
    return f"{percent(middle)}%{f' [{ends[0]}, {ends[1]}]' if ends else ''}"


def precise(value: str) -> str:
    """The end of an interval in percent."""
    found = 100 * float(value)
    return f"{found:.1f}" if round(abs(found)) in EDGES and abs(found) not in EDGES else percent(value)


def rounded(value: float) -> str:
    """Two significant digits, without an exponent where a reader would not write one."""
    found = float(f"{round(value, 12):.2g}")
    return f"{found:,.0f}" if abs(found) >= 10 else f"{found:zg}"


def effect(unit: str, *values: str) -> str:
    """An effect in its unit, perhaps with the ends of its interval; the ratio where it is a logarithm."""
    ratio = unit == "log"
    middle, *ends = [rounded(math.exp(float(one)) if ratio else float(one)) for one in values if one]
    interval = f" [{ends[0]}, {ends[1]}]" if ends else ""
    return f"{middle}×{interval}" if ratio else f"{middle}{interval} {unit.removeprefix('percentage ')}".rstrip()
