"""Write the page of findings: docs/data/claims.csv and docs/findings.md.

    sinkjax run kiya/mask --model smollm2-135m --out results/smollm2/kiya/mask
    python scripts/findings.py results

Every run of a study below the given folders is taken; of several runs of one study on one model, the last counts. Without
folders, the page is rendered again from docs/data/claims.csv. The columns are models; every number comes from a run's claims.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import yaml

from sinkjax.analysis.intervals import FEWEST
from sinkjax.analysis.verdicts import COLUMNS
from sinkjax.config_files.files import CONFIG_FILE, write

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = "data/claims.csv"
PAPERS = {
    "kiya": "Kiya et al. 2026",
    "gu": "Gu et al. 2025",
    "li": "Li et al. 2026",
    "background": "Background papers",
    "trigger": "Ran-Milo 2026",
}
NAMED = ("kiya", "gu", "li", "trigger")  # whose title is the source of all rows below
WHOLE = re.compile(r"\b(\d+)\.0\b")  # a factor of 10.0 is 10
YEAR = re.compile(r"^(ours, on )?[\w.\- ]+ 20\d\d(, |$)")
MOST = 300  # percent; a share beyond says that the whole is nearly 0
EDGES = (10, 50)  # percent, of the rule
ABOUT = {
    "smollm2-135m": "SmolLM2-135M-Instruct, 4-bit",
    "gemma3-270m": "Gemma 3 270M (base), 4-bit Q4_K_M, behind `<bos>`",
    "mini-softmax": "mini-softmax, trained here",
    "": "models trained for the study",
}
WITHOUT = " without <bos>"  # what the rows of runs without BOS add to the name of a model that was trained behind one
TRAINED_BEHIND_BOS = ("gemma3-270m",)
ITS_OWN_BOS = ("kiya/bos-swap",)  # studies that put BOS there themselves
FIGURES = {
    "kiya/mask": (
        "masks-layers",
        "Masking the first key: heads that sink on it and on the next key, and their largest activations.",
    ),
    "kiya/self": (
        "alone-by-layer-later-sink-rate",
        "A token that sees only itself, in some layers: its sink and its largest activation by depth.",
    ),
}
TRIGGER = (
    "images/trigger-maps.png",
    "The trigger task: trained softmax layers sink on BOS, ReLU layers do not ([the trigger task](trigger.md)).",
)
HEAD = """# Findings

{scope}
One [rule](judgements.md) judges every claim:
- **replicates**: the effect is there, and is more than half of its whole; an effect without a whole only has the paper's sign.
- **weaker**: less than half of it. **shown**: the effect is there, its size unsettled. **differs**: the opposite, or less than a
  tenth. **undecided**: the interval allows several words.
- *Stays* marks claims that something does not change. **replicates**: it changes by less than a tenth of the whole.
  **weaker**: by less than half, or not at all. **differs**: by more than half.
- **untested**: the model lacks the object (a massive activation, above 100; a sink, mean attention of 30%) or a whole.
- *(untrained too)*: the architecture with random weights passes as well; without a whole, that means only the same sign.

A cell has the word, the effect (a share of its whole, or in its own unit: where the whole is nearly 0, too) with a 95% interval,
the whole, the independent samples, the matched random controls that it lies above, and the untrained model's effect. For sizes,
shares are of logarithms: half of a 10,000-fold effect is 100-fold. An interval may pass what is possible, such as 100%. \
Words in *italics* have fewer than 8 samples and are not counted; \
parentheses have the papers' numbers. [Every number](data/claims.csv) is a row of a CSV file."""
OURS = "ours, on "
ANSWERS = (
    ("kiya/mask", "smollm2-135m", "all"),
    ("kiya/self", "smollm2-135m", "sink"),
    ("background/massive", "smollm2-135m", "zero"),
    ("trigger/one-layer", "", "softmax"),
)
ANSWER = """In SmolLM2-135M-Instruct the first token has a sink and a massive activation. With its key masked in all layers, the
next token gains {moved} of the attention that it had; another token that sees only itself gains {alone} of it; and with the
massive activation set to zero the loss rises by {zero} of its unedited value. On the trigger task, softmax layers give BOS more
attention than ReLU layers do in rows other than the trigger's, by {trained} of what softmax layers give it."""
BEHIND_BOS = (
    ("kiya/bos-swap", "gemma3-270m", "sink"),
    ("kiya/mask", "gemma3-270m", "all"),
    ("kiya/self", "gemma3-270m", "sink"),
    ("kiya/baseline", f"gemma3-270m{WITHOUT}", "sink"),
)
OTHERWISE = """ In Gemma 3 270M the sink goes with `<bos>`: where it changes places with another \
token, the first position loses {left} of its attention (6 genres, so the word \
below is not counted); masked, `<bos>` leaves {moved} of its own to the next token; and a \
token that sees only itself gains {alone}. Its first token has no sink without `<bos>`: at half depth another one gets \
{more} percentage points more attention."""
LIMITS = """## Limits

- An instruct model of 135M parameters and a base model of 270M (under the Gemma terms, ai.google.dev/gemma/terms), in 4 bits, \
and small models trained here: nothing is said of models in general. Documents are synthetic, in 12 genres, the samples.
- These runs are small, {judged} cells have a word other than untested, and none is corrected for their number. With documents
  unlike the others, an interval by Student's t at n = 8 can miss its level by far ([simulated](judgements.md)). Where the samples
  are prompts, they count as independent.
- "Replicates" means more than half, also where a statement says "as large as", "nearly all" or "its attention": read the share.
  The untrained model is one draw of random weights. The papers' numbers are of other, mostly far larger models.
- Numbers of Li et al. are from published notes; factors and layers that a paper does not state are ours. `kiya/self` and \
`li/isolate` are nearly one experiment. Behind a BOS all documents have the same first token.
- Weights alone are described on the studies' pages: SmolLM2's first key is *longer* than a mean key (25.8 to 19.9)."""


def main() -> None:
    """Collect the claims of runs, and write the table and the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, help="folders with runs of studies, at any depth")
    parser.add_argument("--docs", type=Path, default=DOCS, help="the folder of the documentation")
    options = parser.parse_args()
    table = options.docs / DATA
    rows = {key(row): row for row in (read(table) if table.exists() else [])}
    runs = sorted(path.parent for given in options.folders for path in given.rglob(CONFIG_FILE))
    for folder in runs:
        found = claims(folder)
        rows = {name: row for name, row in rows.items() if not found or name[:2] != key(found[0])[:2]}
        rows |= {key(row): row for row in found}
        picture(folder, options.docs)
    kept = sorted(rows.values(), key=lambda row: (row["study"], row["model"]))
    write(table, as_csv(kept))
    write(options.docs / "findings.md", page(kept, options.docs))
    print(f"{len(kept)} claims of {len({row['study'] for row in kept})} studies: {table}")


def key(row: Mapping[str, str]) -> tuple[str, str, str]:
    """Study, model and claim of a row."""
    return row["study"], row["model"], row["claim"]


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def claims(folder: Path) -> list[dict[str, str]]:
    """The claims of a run, as its claims.csv states them; none if the study is not judged by the one rule."""
    path = folder / "claims.csv"
    rows = [row for row in (read(path) if path.exists() else []) if "word" in row]
    if rows and rows[0]["model"] in TRAINED_BEHIND_BOS:
        config = yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        if config.get("bos", "none") == "none" and config.get("experiment") not in ITS_OWN_BOS:
            return [row | {"model": f"{row['model']}{WITHOUT}"} for row in rows]
    return rows


def picture(folder: Path, docs: Path) -> None:
    """Copy the figure of a run that the page shows; the SmolLM2 run counts."""
    config = yaml.safe_load((folder / CONFIG_FILE).read_text(encoding="utf-8"))
    study = config.get("experiment", "")
    if study in FIGURES and config.get("model") == "smollm2-135m":
        drawn = folder / "figures" / f"{FIGURES[study][0]}.png"
        if drawn.exists():
            (docs / image(study)).write_bytes(drawn.read_bytes())


def image(study: str) -> str:
    """The place of a study's figure in the documentation."""
    return f"images/findings-{study.replace('/', '-')}.png"


def as_csv(rows: Iterable[Mapping[str, str]]) -> str:
    """Rows as CSV."""
    out = io.StringIO()
    table = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return out.getvalue()


def page(rows: Sequence[Mapping[str, str]], docs: Path = DOCS) -> str:
    """The page: scope, the table of each paper, figures and limits."""
    models = sorted({row["model"].removesuffix(WITHOUT) for row in rows}, key=lambda model: [*ABOUT, model].index(model))
    claimed = [row for row in rows if row["kind"] == "claim"]
    most = {model: max(int(row["n"] or 0) for row in claimed if row["model"] == model) for model in models if claimed}
    samples = "; ".join(f"{ABOUT.get(model, model)} (n up to {most.get(model, 0)})" for model in models)
    scope = f"Claims of the papers on {samples}."
    own = [row for row in claimed if row["source"].startswith(OURS)]
    theirs = [row for row in claimed if row not in own]
    checks = Counter(row["word"] for row in rows if row["kind"] == "identity")
    checked = f"- Checks of the code (identities): {checks['holds']} hold, {checks['fails']} fail."
    answer = found_here(rows)
    parts = [
        HEAD.format(scope=f"{answer}\n\n{scope}" if answer else scope),
        f"Words by model, our own extensions not counted:\n{counts(theirs, models)}\n{checked}",
    ]
    sections = {title: [row for row in theirs if row["study"].startswith(f"{paper}/")] for paper, title in PAPERS.items()}
    for title, here in (sections | {"Beyond the papers: our extensions": own}).items():
        if here:
            parts += [
                f"## {title}",
                table(here, [model for model in models if any(row["model"].removesuffix(WITHOUT) == model for row in here)]),
            ]
    shown = [(image(study), caption) for study, (_, caption) in FIGURES.items()] + [TRIGGER]
    figures = [f"![{alt(caption)}]({name})\n*{caption}*" for name, caption in shown if (docs / name).exists()]
    parts += ["\\\n".join(figures)] if figures else []
    judged = sum(row["word"] != "untested" for row in claimed)
    return "\n\n".join([*parts, LIMITS.format(judged=judged)]) + "\n"


def alt(caption: str) -> str:
    """The text of a figure for those who do not see it."""
    return caption.partition(":")[0]


def found_here(rows: Sequence[Mapping[str, str]]) -> str:
    """The answer in three sentences, from the rows of SmolLM2 and of the trigger task; "" unless all are there."""
    by_claim = {key(row): row for row in rows}
    try:
        moved, alone, zero, trained = (effect_of(by_claim[name]) for name in ANSWERS)
    except KeyError:
        return ""
    answer = ANSWER.format(moved=moved, alone=alone, zero=zero, trained=trained)
    if any(name not in by_claim for name in BEHIND_BOS):
        return answer
    left, moved, alone, without = (by_claim[name] for name in BEHIND_BOS)
    lost = {"s": left["s"], "s_low": left["s_high"], "s_high": left["s_low"]}  # what is lost, above 0
    lost = {name: str(-float(value)) for name, value in lost.items()}
    more, low, high = (f"{-float(without[name]):.0f}" for name in ("d", "d_high", "d_low"))
    said = {"left": effect_of(lost), "moved": effect_of(moved), "alone": effect_of(alone), "more": f"{more} [{low}, {high}]"}
    return answer + OTHERWISE.format(**said)


def effect_of(row: Mapping[str, str]) -> str:
    """A share with its interval."""
    return share(row["s"], row["s_low"], row["s_high"])


def counts(rows: Sequence[Mapping[str, str]], models: Sequence[str]) -> str:
    """How many claims of papers have which word on each model; words of few samples are not counted."""
    lines = []
    for model in (f"{name}{ending}" for name in models for ending in ("", WITHOUT)):
        found = Counter(row["word"] for row in rows if row["model"] == model and not is_small(row))
        if found:
            about = ABOUT.get(model.removesuffix(WITHOUT), model).replace(
                "behind", "without" if model.endswith(WITHOUT) else "behind"
            )
            lines.append(f"- {about}: {', '.join(f'{count} {word}' for word, count in found.most_common())}")
    return "\n".join(lines)


def table(rows: Sequence[Mapping[str, str]], models: Sequence[str]) -> str:
    """A line for each claim, a column for each model."""
    found: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}
    for row in rows:
        found.setdefault((row["study"], row["claim"]), {})[row["model"]] = row
    lines = [
        "| the statement | " + " | ".join(ABOUT.get(model, model) for model in models) + " |",
        "|---" * (len(models) + 1) + "|",
    ]
    for (study, _), cells in found.items():
        first = next(iter(cells.values()))
        where = f"{YEAR.sub('', first['source']) if first['study'].split('/')[0] in NAMED else first['source']}"
        said = [both(cells, model).replace("|", "\\|") for model in models]
        paper = f" (paper: {first['paper']})" if first.get("paper") else ""
        stays = " *Stays.*" if first.get("stays") else ""
        text = WHOLE.sub(r"\1", first["statement"])
        statement = f"{text}{stays} ({where}; `{study}`){paper}".replace("|", "\\|")
        lines.append(f"| {statement} | {' | '.join(said)} |")
    return "\n".join(lines)


def both(cells: Mapping[str, Mapping[str, str]], model: str) -> str:
    """The cell of a model, with its numbers without BOS below if the claim was measured so too; "-" for neither."""
    found = [cell(cells[model])] if model in cells else []
    found += [f"without `<bos>`: {cell(cells[model + WITHOUT])}"] if model + WITHOUT in cells else []
    return "<br>".join(found) or "-"


def cell(row: Mapping[str, str]) -> str:
    """A word with the numbers that decide it."""
    word = f"*{row['word']}*" if is_small(row) else f"**{row['word']}**"
    if not row["d"]:
        return f"{word}<br>{row['reason']}" if row["reason"] else word
    if row["s"] and not is_far(row["s"], row["s_low"], row["s_high"]):
        numbers = share(row["s"], row["s_low"], row["s_high"]) + whole(row)
    else:
        numbers = effect(row) + (f" (whole:{whole(row).removeprefix(' of')})" if whole(row) else "")
    matched = row["controls"] not in ("", "0") and not row.get("stays")
    controls = f", {row['controls_below']} of {row['controls']} controls" if matched else ""
    in_shares = row["twin_s"] and not is_far(row["twin_s"], row["s"]) and (row["s"] or not row.get("twin_d"))
    twin = f", untrained {percent(row['twin_s'])}%" if in_shares else ""
    why = "" if row["d_low"] else f"<br>{row['reason']}"
    if row["word"] == "untested":
        why = f"<br>{row['reason'].partition(', so ')[0].rstrip('.')}"
    if not in_shares and row.get("twin_d"):
        twin = f", untrained {effect({'unit': row['unit'], 'd': row['twin_d'], 'd_low': '', 'd_high': ''})}"
    return f"{word} {numbers}<br>{row['n']} {samples(row['method'])}{controls}{twin}{why}"


def is_small(row: Mapping[str, str]) -> bool:
    """Whether a word stands on fewer than 8 independent samples."""
    return bool(row["d"]) and row["word"] != "untested" and int(row["n"]) < FEWEST


def whole(row: Mapping[str, str]) -> str:
    """The whole of a share, with its unit."""
    if not row["s"] or not row.get("whole"):
        return ""
    value, unit = float(row["whole"]), row["unit"]
    if unit == "log":
        return f" of a {rounded(math.exp(value))}-fold size"
    return f" of {rounded(value)}{'' if not unit else ' points' if unit == 'percentage points' else f' {unit}'}"


def samples(method: str) -> str:
    """What the independent samples of an interval are."""
    if "cluster" in method:
        return "genres"
    return next((kind for kind in ("seeds", "prompts", "documents") if kind in method), "samples")


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
    found = float(f"{value:.2g}")
    return f"{found:,.0f}" if abs(found) >= 10 else f"{found:g}"


def effect(row: Mapping[str, str]) -> str:
    """An effect in its unit; behind a logarithm, the ratio."""
    found = [float(row[name]) for name in ("d", "d_low", "d_high") if row[name]]
    ratio = row["unit"] == "log"
    mean, *ends = [rounded(math.exp(one) if ratio else one) for one in found]
    return f"{mean}{f' [{ends[0]}, {ends[1]}]' if ends else ''} {'times' if ratio else row['unit']}".rstrip()


if __name__ == "__main__":
    main()
