"""Write docs/data/claims.csv and the pages made from it: docs/findings.md and docs/findings-more.md.

    python scripts/findings.py docs/data/protocol

Every run of a study below the given folders is taken; of several runs of one study on one model, behind one token, of one
text, the last counts. Without folders, the pages are made again from docs/data/claims.csv. Every number comes from a run's
claims.csv, also those of the prose: {study.claim@model} is the share of a claim, {study.claim@model:effect} its effect, and
{study.claim@model=differs} a share whose word must be that one; {study[edit][measure]@model} is from a run's summary.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml

from sinkjax.analysis.intervals import FEWEST
from sinkjax.analysis.verdicts import COLUMNS
from sinkjax.config_files.files import CONFIG_FILE, write

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = "data/claims.csv"
Row = Mapping[str, str]


class Condition(NamedTuple):
    """A model, the token before each document (`none`, `model` or an id) and the text."""

    model: str
    bos: str = ""
    text: str = ""


SMOL, GEMMA = Condition("smollm2-135m", "none", "wikitext"), Condition("gemma3-270m", "model", "wikitext")
TRAINED = Condition("")  # models that a study trains
MAIN = {SMOL: "SmolLM2-135M-Instruct", GEMMA: "Gemma 3 270M behind `<bos>`"}
OTHERWISE = {
    SMOL._replace(bos="0"): "SmolLM2 behind `<|endoftext|>`",
    SMOL._replace(text="packaged"): "SmolLM2, packaged text",
    GEMMA._replace(bos="none"): "Gemma without `<bos>`",
    GEMMA._replace(bos="506"): "Gemma behind ` the`",
    GEMMA._replace(text="packaged"): "Gemma, packaged text",
}
MINIS = {Condition(f"mini-{kind}", "model", "wikitext"): f"mini-{kind}" for kind in ("softmax", "head-norm")}
PAPERS = {"kiya": "Kiya et al. 2026", "gu": "Gu et al. 2025", "li": "Li et al. 2026"}
OURS = "ours, on "
UNTESTED = "**untested**"
AS_ABOVE = f"{UNTESTED}<br>as above"
WHOLE_NUMBER = re.compile(r"\b(\d+)\.0\b")  # a factor of 10.0 is 10
YEAR = re.compile(r"^(ours, on )?[\w.\- ]+ 20\d\d(, |$)")
LOOKED_UP = re.compile(r"\{([\w/-]+)\.([\w-]+)@([\w-]+)(?:=([a-z]+))?(?::(effect|opposite|untrained|whole|n))?\}")
MEASURED = re.compile(r"\{([\w/-]+)\[([^\]]+)\]\[([^\]]+)\]@([\w-]+)(?::(change|opposite))?\}")
INTERVAL = re.compile(r" \[[^\]]*\]")
MODELS = {
    "smollm": SMOL,
    "gemma": GEMMA,
    "gemma-without": GEMMA._replace(bos="none"),
    "gemma-the": GEMMA._replace(bos="506"),
    "smollm-behind": SMOL._replace(bos="0"),
    "trained": TRAINED,
    **{name: given for given, name in MINIS.items()},
}
MOST = 300  # percent; a share beyond says that the whole is nearly 0
EDGES = (10, 50)  # percent, of the rule
ARTICLES = "15"  # samples of most claims, which the page says once


def main() -> None:
    """Collect the claims of runs, and write the table and the pages."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    table = options.docs / DATA
    rows = {key(row): row for row in (read(table) if table.exists() else [])}
    for folder in sorted(path.parent for given in options.folders for path in given.rglob(CONFIG_FILE)):
        measured = condition(yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8")))
        found = claims(folder, measured)
        studies = {row["study"] for row in found}
        rows = {name: row for name, row in rows.items() if row["study"] not in studies or not is_in(row, [measured])}
        rows |= {key(row): row for row in found}
        picture(folder, measured, options.docs)
    stays = {study_and_claim(row): row["stays"] for row in rows.values() if row.get("stays")}  # an untested claim may not say it
    rows = {name: row | {"stays": stays.get(study_and_claim(row), "")} for name, row in rows.items()}
    kept = sorted(rows.values(), key=lambda row: (row["study"], *condition(row)))
    write(table, as_csv(kept))
    for name, text in (("findings.md", page(kept, options.docs)), ("findings-more.md", more(kept, options.docs))):
        write(options.docs / name, text)
    print(f"{len(kept)} claims of {len({row['study'] for row in kept})} studies: {table}")


# The table.


def key(row: Row) -> tuple[str, ...]:
    """Study, condition and claim of a row."""
    return row["study"], *condition(row), row["claim"]


def condition(given: Mapping[str, object]) -> Condition:
    """The condition of a row, or of a run by its settings."""
    return Condition(*(str(given.get(name, "")) for name in Condition._fields)) if given.get("model") else TRAINED


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claims(folder: Path, measured: Condition) -> list[dict[str, str]]:
    """The claims of a run, as its claims.csv states them, with the run's condition."""
    path = folder / "claims.csv"
    return [row | measured._asdict() for row in (read(path) if path.exists() else []) if "word" in row]


def as_csv(rows: Iterable[Row]) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    table = csv.DictWriter(out, (COLUMNS[0], *Condition._fields, *COLUMNS[2:]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


# The pages.


def page(rows: Sequence[Row], docs: Path = DOCS) -> str:
    """The page of the four papers: the answer, their tables, figures, limits."""
    parts = [HEAD, *(looked_up(text, rows, docs) for text in (ANSWER, *TOLD)), WORDS]
    theirs = [row for row in rows if row["kind"] == "claim" and not row["source"].startswith(OURS)]
    tested = {study_and_claim(row) for row in theirs if is_tested(row)}
    for paper, title in PAPERS.items():
        here = [
            row for row in theirs if row["study"].startswith(f"{paper}/") and is_in(row, MAIN) and study_and_claim(row) in tested
        ]
        parts += [f"## {title}", table(here, MAIN, docs)] if here else []
    trained = [row for row in theirs if row["study"].startswith("trigger/")]
    parts += ["## Ran-Milo 2026", table(trained, {TRAINED: "models trained for the study"}, docs)] if trained else []
    checks = Counter(row["word"] for row in rows if row["kind"] == "identity")
    parts += [f"Checks of the code: {checks['holds']} hold, {checks['fails']} fail."]
    drawn = [f"![{alt(caption)}]({image(name)})\n*{caption}*" for name, caption in FIGURES if (docs / image(name)).exists()]
    parts += ["\\\n".join(drawn)] if drawn else []
    parts += [LIMITS.format(*(looked_up(one, [], docs) or "-" for one in LARGEST))]
    return "\n\n".join(filter(None, parts)) + "\n"


def more(rows: Sequence[Row], docs: Path = DOCS) -> str:
    """The page of the rest: other papers, our own statements, other tokens and text, and small models."""
    judged = [row for row in rows if row["kind"] == "claim"]
    own = [row for row in judged if row["source"].startswith(OURS)]
    papers = [row for row in judged if row["study"].startswith("background/") and row not in own]
    tested = {study_and_claim(row) for row in judged if is_tested(row)}
    untested = [row for row in judged if row not in [*own, *papers] and is_in(row, MAIN) and study_and_claim(row) not in tested]
    otherwise = [row for row in judged if is_in(row, OTHERWISE) and not is_in(row, MAIN)]
    small = [row for row in judged if is_in(row, MINIS)]
    sections = (
        ("Statements of the four papers that neither model can test", untested, MAIN),
        ("Other papers", [row for row in papers if is_in(row, MAIN)], MAIN),
        ("Our own statements", [row for row in own if is_in(row, MAIN)], MAIN),
        ("Our own statements on the trigger task", [row for row in own if condition(row) == TRAINED], {TRAINED: "here"}),
        ("Other tokens in front, and packaged text", otherwise, OTHERWISE),
        ("Small models trained here", small, MINIS),
    )
    parts = [
        MORE,
        *filter(None, [looked_up(SMALL, [], docs)]),
        *(f"## {title}\n\n{table(here, columns, docs)}" for title, here, columns in sections if here),
    ]
    return "\n\n".join(parts) + "\n"


def study_and_claim(row: Row) -> tuple[str, str]:
    """The names of a row's study and claim."""
    return row["study"], row["claim"]


def is_tested(row: Row) -> bool:
    """Whether one of the main conditions tests a claim."""
    return is_in(row, MAIN) and row["word"] != "untested"


def is_in(row: Row, columns: Collection[Condition]) -> bool:
    """Whether a row belongs to one of some conditions."""
    return condition(row) in columns


def looked_up(text: str, rows: Sequence[Row], docs: Path = DOCS, *, ends: bool = True) -> str:
    """Prose with its numbers, and the ends of their intervals; "" while a claim of it is not there.

    Words that it states must be the claims'.
    """
    found = {key(row): row for row in rows}

    def number(named: re.Match[str]) -> str:
        study, claim, model, word, which = named.groups()
        given = MODELS[model]
        row = found[study, *given, claim]
        if word and row["word"].partition(" (")[0] != word:
            raise SystemExit(f"the prose says that {study}, claim {claim!r} of {model}, {word}, but it says {row['word']!r}")
        match which:
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

    def told(named: re.Match[str]) -> str:
        return number(named) if ends else INTERVAL.sub("", number(named))

    def measured(named: re.Match[str]) -> str:
        study, edit, measure, model, which = (" ".join(part.split()) if part else part for part in named.groups())
        summary = read(docs / "data" / "protocol" / study / "-".join(MODELS[model]) / "summary.csv")
        (row,) = (row for row in summary if (row["edit"], row["measure"]) == (edit, measure))
        if which == "opposite":
            return effect("", str(-float(row["mean"])))
        columns = ["effect_mean", "effect_low", "effect_high"] if which == "change" else ["mean"]
        return effect("", *(row[column] for column in (columns if ends else columns[:1])))

    try:
        return textwrap.fill(MEASURED.sub(measured, LOOKED_UP.sub(told, text)), 120, break_on_hyphens=False)
    except (KeyError, FileNotFoundError):
        return ""


def table(rows: Sequence[Row], columns: Mapping[Condition, str], docs: Path = DOCS) -> str:
    """A line for each claim, a column for each condition that has a row."""
    found: dict[tuple[str, str], dict[Condition, Row]] = {}
    for row in rows:
        found.setdefault(study_and_claim(row), {})[condition(row)] = row
    present = [one for one in columns if any(one in cells for cells in found.values())]
    lines = [["statement", *(columns[one] for one in present)], ["---"] * (len(present) + 1)]
    above = [""] * len(present)
    for (study, _), cells in found.items():
        here = [cell(cells[given]) if given in cells else "-" for given in present]
        shown = (AS_ABOVE if one == last else one for one, last in zip(here, above, strict=True))
        claimed = max(cells.values(), key=lambda row: row.get("stays", ""))
        remark = REMARKS.get(study_and_claim(claimed), "") if columns is MAIN else ""
        said = " ".join(filter(None, (statement(study, claimed), looked_up(remark, [], docs).replace("\n", " "))))
        lines.append([said, *shown])
        above = [one if one.startswith(UNTESTED) else last for one, last in zip(here, above, strict=True)]
    joined = (" | ".join(entry.replace("|", r"\|") for entry in entries) for entries in lines)
    return "\n".join(f"| {line} |" for line in joined)


def statement(study: str, row: Row) -> str:
    """What is claimed, where a paper shows it, and its number."""
    of_paper = study.split("/")[0] in (*PAPERS, "trigger")
    where = YEAR.sub("", row["source"]) if of_paper else row["source"]
    paper = f" Paper: {row['paper']}." if row.get("paper") else ""
    stays = " *Stays.*" if row.get("stays") else ""
    claimed = WHOLE_NUMBER.sub(r"\1", row["statement"])
    return f"{claimed}{stays} ({where}; `{study}`){paper}"


def cell(row: Row) -> str:
    """A word with the numbers that decide it."""
    word = f"*{row['word']}*" if is_small(row) else f"**{row['word']}**"
    why = row["reason"].partition(", so ")[0].rstrip(".")
    if not row["d"] or word == UNTESTED:
        return f"{word}<br>{why}" if why else word
    matched = row["controls"] not in ("", "0") and not row.get("stays")
    controls = f"{row['controls_below']}/{row['controls']} controls" if matched else ""
    beside = ", ".join(filter(None, (samples(row), controls, twin(row))))
    reason = "" if row["d_low"] else why
    return "<br>".join(filter(None, (f"{word} {numbers(row)}", beside, reason)))


def numbers(row: Row) -> str:
    """The share of the whole with its interval, or the effect in its unit where the whole is missing or nearly 0."""
    return share(*shares_of(row)) if in_shares(row) else effect(row["unit"], row["d"], row["d_low"], row["d_high"])


def in_shares(row: Row) -> bool:
    """Whether an effect is best read as a share of its whole."""
    return bool(row["s"]) and not is_far(*shares_of(row))


def shares_of(row: Row) -> tuple[str, str, str]:
    """A share of the whole, and the ends of its interval."""
    return row["s"], row["s_low"], row["s_high"]


def twin(row: Row) -> str:
    """The effect in the untrained model."""
    if row["twin_s"] and in_shares(row) and not is_far(row["twin_s"]):
        return f"untrained {percent(row['twin_s'])}%"
    return f"untrained {effect(row['unit'], row['twin_d'])}" if row["twin_d"] else ""


def is_small(row: Row) -> bool:
    """Whether a word stands on fewer than 8 independent samples."""
    return bool(row["d"]) and row["word"] != "untested" and int(row["n"]) < FEWEST


def samples(row: Row) -> str:
    """How many independent samples there are, where they are not the protocol's articles."""
    clustered = "cluster" in row["method"]
    return "" if row["n"] == ARTICLES and not clustered else f"n={row['n']}{' genres' * clustered}"


def is_far(*shares: str) -> bool:
    """Whether one of some shares is so large that the whole is nearly 0, and the effect itself says more."""
    return any(abs(float(one)) * 100 > MOST for one in shares if one)


def percent(value: str) -> str:
    """A share in percent."""
    return f"{100 * float(value):z.0f}"


def share(mean: str, low: str, high: str) -> str:
    """A share in percent with its interval; one more digit for an end that rounds to an edge of the rule."""
    ends = [precise(one) for one in (low, high)] if low and high else []
    return f"{percent(mean)}%{f' [{ends[0]}, {ends[1]}]' if ends else ''}"


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
    mean, *ends = [rounded(math.exp(float(one)) if ratio else float(one)) for one in values if one]
    interval = f" [{ends[0]}, {ends[1]}]" if ends else ""
    return f"{mean}×{interval}" if ratio else f"{mean}{interval} {unit.removeprefix('percentage ')}".rstrip()


def picture(folder: Path, measured: Condition, docs: Path) -> None:
    """Copy the figures of a run that the page shows."""
    for name, _ in FIGURES:
        model, _, drawing = name.partition(":")
        file = folder / "figures" / f"{drawing}.png"
        if drawing and measured == MODELS[model] and file.exists():
            (docs / image(name)).parent.mkdir(parents=True, exist_ok=True)
            (docs / image(name)).write_bytes(file.read_bytes())


def image(name: str) -> str:
    """The place of a figure in the documentation."""
    return f"images/{'findings-' if ':' in name else ''}{name.replace(':', '-')}.png"


def alt(caption: str) -> str:
    """The text of a figure for those who do not see it."""
    return caption.partition(":")[0].rstrip(".")


# What the page says in prose.

HEAD = """# Findings

We tested claims of four papers on two 4-bit language models, on articles of WikiText-2, by a [protocol](protocol.md) frozen
before the runs, and on models trained here earlier."""
ANSWER = """{gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@smollm}% of SmolLM2's heads sink on the first
token and {gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@gemma}% of Gemma's. SmolLM2's main sink is on
whatever token comes first in a text ({gu/sink-rate[natural text: no edit][heads that sink on the strongest key but 0
(%)]@smollm}% of heads sink on another), Gemma's on `<bos>`. On the trigger task, where most tokens must write nothing, a softmax
layer sinks on BOS, and a layer of ReLU / max(i, 1) does not."""
TOLD = (
    """**Position or token.** When an ordinary first token of SmolLM2's changes places with another, the attention to the first
position changes at half depth by {kiya/bos-swap.ordinary@smollm=replicates}, when `<|endoftext|>` does, by
{kiya/bos-swap.sink@smollm-behind=weaker}; when Gemma's `<bos>` does, by {kiya/bos-swap.sink@gemma=differs}, and `<bos>` takes
{kiya/bos-swap.sink-first@gemma=replicates} of the first layer's sink along (six positions). Without `<bos>`, or behind ` the`,
{gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@gemma-without}% of Gemma's heads sink on the first token and
{gu/sink-rate[natural text: no edit][heads that sink on the strongest key but 0 (%)]@gemma-without}% or {gu/sink-rate[natural
text: no edit][heads that sink on the strongest key but 0 (%)]@gemma-the}% on another. With the first key hidden, the next
token gains {kiya/mask.all@smollm=replicates} of its attention in SmolLM2 and {kiya/mask.all@gemma=differs} in Gemma. A token
that sees only itself gains {kiya/self.sink@smollm=weaker} (at position 1, the first token keeps as much), in Gemma
{kiya/self.sink@gemma=differs}.""",
    """**What makes the sink.** In SmolLM2 the first key's angle, and not its norm, raises its scores. Put into an unedited run,
four super neurons of a token that sees only itself bring {li/mediation.neurons@smollm=replicates} of its activation and
raise the attention it gets to {li/mediation[one link put in: link neurons][attention that key 10 receives from later
queries (%)]@smollm}% (isolated: {li/mediation[isolated: kind self, window all][attention that key 10 receives from later
queries (%)]@smollm}%); its keys bring {li/mediation.keys@smollm=replicates} of its sink (untrained too), its largest dim
{li/mediation.disparity@smollm=weaker}. The sink is half grown {kiya/baseline.lag@smollm=differs:opposite} before
the activation is, behind `<|im_start|>` {kiya/baseline[with BOS: no edit][layers from the onset of the activation at
position 0 to the onset of the sink]@smollm:opposite}.
Seeing only itself is not needed: a token that averages all values evenly gets nearly the same attention
(difference {li/isolate.average@smollm=differs}).""",
    """**What removal costs.** Zeroing the first key's weights, rows not rescaled, costs {kiya/after-softmax[key hidden: way
weights in all layers][loss (nats per token)]@smollm:change} nats in SmolLM2 and {kiya/after-softmax[key hidden: way weights
in all layers][loss (nats per token)]@gemma:change} in Gemma; masking its logits costs {kiya/after-softmax[key hidden: way
logits in all layers][loss (nats per token)]@smollm:change} and {kiya/after-softmax[key hidden: way
logits in all layers][loss (nats per token)]@gemma:change}. SmolLM2's massive activation kept at zero costs
{background/massive[largest dims to zero and kept there: the layers from the one in which it forms][loss (nats per
token)]@smollm:change} nats, though {background/massive[largest dims to zero and kept there: the layers from the one in which
it forms][heads that sink on key 0 (%)]@smollm}% of heads still sink; held at its mean,
{background/massive.mean@smollm=replicates:effect}. Gemma's, zeroed in layer 0, where it forms, costs
{background/massive.zero@gemma=differs:effect} and grows again; layer 1's largest dims, zeroed, cost
{background/massive[each layer's largest dims to zero: layer 1][loss (nats per token)]@gemma:change}. A cache of the last 32
keys costs SmolLM2 {background/streaming.window@smollm:effect} over recomputed windows and Gemma
{background/streaming.window@gemma:effect}; keeping the first four undoes, net of random keys,
{background/streaming.first@smollm=replicates} and {background/streaming.first@gemma=replicates}.""",
    """**What needs no training.** Untrained, SmolLM2's head outputs vary {li/variance.first@smollm:untrained} as much at position
0 as elsewhere, and its first token's state is {gu/norms.hidden@smollm:untrained} the others' (trained:
{gu/norms.hidden@smollm:effect}). None of its heads sinks.""",
)
WORDS = """One [rule](judgements.md) judges every claim by the share that the effect has of a whole, such as the first token's
attention without an edit, or the unedited loss:
- **replicates**: more than half; without a whole, only the paper's sign. **weaker**: less. **shown**: there, size unsettled.
  **differs**: less than a tenth, or the opposite. **undecided**: the interval allows several words.
- *Stays* marks claims of no change: they replicate below a tenth of the whole.
- **untested**: a premise fails (no sink, no activation above 100), or the whole is not above 0.
- *(untrained too)*: random weights pass as well; without a whole, by any excess.

A cell has the word, the share (of activations, of their logarithms) less the mean of random controls, a 95% interval, the
samples unless they are 15 articles (8 or less: positions), the controls below the effect, and the untrained model's share.
*Italics*: fewer than 8 samples. [More](findings-more.md) has the rest, and a [table](data/claims.csv) every
number."""
MORE = """# More findings

The rest of the runs behind [Findings](findings.md), in the same words, from the same [table](data/claims.csv): papers
beside the four, statements that no paper makes, the same studies behind other tokens and on synthetic text, and small
models trained here."""
SMALL = """{gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@mini-softmax}% of the heads of `mini-softmax`
sink on the first token and {gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@mini-head-norm}% of the heads of
`mini-head-norm`; no prompt has a massive activation in either (|h| above 100)."""
# Said after a statement: a number of the paper's readout beside the judged one, or what the statement leaves open.
REMARKS = {
    ("kiya/self", "leaves"): "The mean is over all queries, also those before the token.",
    ("gu/angles", "cosine"): """Here {gu/angles[no edit][cosine with queries, first key]@smollm} and
{gu/angles[no edit][cosine with queries, first key]@gemma}.""",
    ("li/amplify", "sink"): "The whole is this token's own gain.",
    ("li/amplify", "rises"): "In SmolLM2 it falls beyond a factor of 20.",
    ("li/dominance", "positive"): "The excess over ordinary keys is judged; Gemma's is below the untrained one.",
    ("li/variance", "structure"): """Over all sequences together, as in the paper:
{li/variance[the model's attention][Kendall tau of a dim's deviation and its row of W_O]@smollm} and
{li/variance[the model's attention][Kendall tau of a dim's deviation and its row of W_O]@gemma}.""",
    ("kiya/baseline", "lag"): "Each forms where it exceeds half of its largest value over layers.",
    ("background/massive", "zero"): """Gemma's grows again after layer 0; layer 1's largest dims at zero cost
{background/massive[each layer's largest dims to zero: layer 1][loss (nats per token)]@gemma:change} nats.""",
    ("background/massive", "exists"): """In Gemma
{background/elsewhere[no edit][prompts with a massive activation at position 8 (%)]@gemma}% have one at position 8 too.""",
    ("background/elsewhere", "activation"): "No line break occurs in these articles.",
    ("background/elsewhere", "sink"): "No line break occurs in these articles.",
}
FIGURES = (
    (
        "smollm:masks-layers",
        "SmolLM2: with the first key masked in all layers (right end), the next token gets its sink and as large an activation.",
    ),
    ("gemma:masks-layers", "Gemma behind `<bos>`: no head sinks on it, and its activation falls."),
    ("smollm:alone-by-layer-later-sink-rate", "SmolLM2: a token that sees only itself, its sink and its activation by layer."),
    ("trigger-maps", "The trigger task, one model each: softmax sinks on BOS, ReLU / max(i, 1) does not ([more](trigger.md))."),
)
LARGEST = (
    "{kiya/baseline[no edit][largest |h| at any position but 0]@gemma}",
    "{kiya/mask[no edit][largest |h| at position 0]@gemma}",
)
LIMITS = """## Limits

- An instruct model of 135M parameters and a base model of 270M (under the Gemma terms); the papers' are far larger. In
  Gemma ordinary tokens reach activations of {} too (`<bos>`: {}).
- Fifteen articles of 64 tokens, one too few for bets: Student's t judges most words. Where
  4% of documents are far from the others, half of its words at the rule's edges are false at 16 samples
  ([simulated](judgements.md)). There is no correction for multiple testing.
- Claims and rule follow earlier runs on other text. The untrained model is one draw of random weights. Behind
  a BOS all documents have the same first token, so its state before it sees others is one sample.
- Li et al.'s numbers, Ran-Milo's theorems and Gu et al.'s numbers of random and repeated tokens are from published
  notes; settings that a paper leaves open are ours. `li/isolate` is `kiya/self` at one position, read over all layers."""


if __name__ == "__main__":
    main()
