"""Write the findings at the head of README.md and docs/index.md, the README's table of studies, and numbers of other pages.

    python scripts/front_page.py

Each finding is a statement of a paper, then in bold the word and the number of each model that tests it, and a figure. A model's
word and number come from its row in docs/data/claims.csv; scripts/findings.py writes that file. The numbers of the table and of
`PROSE` are looked up as in the prose of the findings, and a word that is no longer the claim's stops this script. {340k/row} is
what a row takes from the softmax's sink, by docs/pretraining-340k.md; {learning/ROW/COLUMN} is a mean in a table of
docs/while-it-learns.md, {in-use/MODEL/WAY} one of the unedited model in docs/in-use.md, and {emergence/MODEL/MEASURE}, or
{emergence/MODEL/MEASURE/effect}, one of docs/data/emergence/summary.csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from findings import MAIN, TRAINED, Condition, in_shares, is_in, looked_up, numbers
from prose import PROSE

from sinkjax.analysis.intervals import FEWEST

ROOT = Path(__file__).resolve().parents[1]
CLAIMS = ROOT / "docs" / "data" / "claims.csv"
MARKED = re.compile(r"(<!-- ([\w-]+) made by scripts/front_page.py -->\n+).*?(?=\n+<!-- end -->)", re.DOTALL)
SMALL = re.compile(r"\{340k/([\w-]+)\}")
LEARNING = re.compile(r"\{learning/([^/}]+)/([^}]+)\}")
EMERGED = re.compile(r"\{emergence/([^/}]+)/([^/}]+)(/effect)?\}")
IN_USE = re.compile(r"\{in-use/([^/}]+)/([^}]+)\}")
MODELS = {
    **MAIN,
    Condition("mini-softmax", "model", "wikitext"): "`mini-softmax`",
    TRAINED: "Models trained here",
}


@dataclass(frozen=True)
class Finding:
    """A claim, by its study and its name there, and its figure in docs/images, with its alternative text and its caption."""

    study: str
    claim: str
    image: str
    alt: str
    caption: str


FINDINGS = (
    Finding(
        "kiya/mask",
        "all",
        image="findings-smollm-masks-layers.png",
        alt="Sinks and activations of the first two tokens while the first key is masked",
        caption="SmolLM2-135M-Instruct. Bands are 95% intervals over documents; dashed lines are the unedited model.",
    ),
    Finding(
        "kiya/self",
        "sink",
        image="findings-smollm-alone-by-layer-later-sink-rate.png",
        alt="Sink and activation of a token that sees only itself in some layers",
        caption="SmolLM2-135M-Instruct, the mean over 8 positions of the token. Bands are 95% intervals over documents.",
    ),
    Finding(
        "trigger/one-layer",
        "softmax",
        image="trigger-maps.png",
        alt="Attention of trained softmax and ReLU layers on the trigger task",
        caption="One model of each kind, 1,000 sequences: mean above, standard deviation below."
        " The arrow marks the trigger's row.",
    ),
)


# The README's table: studies, question, answer.
STUDIES = (
    (
        "[`kiya/baseline`, `bos-swap`, `embedding`, `rope`](sinkjax/papers/kiya)",
        "Where are the sink and the massive activation? Do they follow BOS, the direction of its key, or rotary index 0?",
        "SmolLM2: the first position, for any token and any rotary index; moving `<|endoftext|>` away from it changes the sink by"
        " {kiya/bos-swap.sink@smollm-behind=weaker}. Gemma: `<bos>`; {kiya/bos-swap.sink-first@gemma=replicates} of the first"
        " layer's sink moves with it.",
    ),
    (
        "[`kiya/mask`, `self`, `after-softmax`](sinkjax/papers/kiya)",
        "Where do they go when the first key is masked, or when another token sees only itself?",
        "SmolLM2: to the next token ({kiya/mask.all@smollm=replicates}), and half as much ({kiya/self.sink@smollm=weaker}) to one"
        " that sees only itself. Gemma: to neither ({kiya/mask.all@gemma=differs}, {kiya/self.sink@gemma=differs}).",
    ),
    (
        "[`gu/sink-rate`, `norms`, `angles`](sinkjax/papers/gu)",
        "How many heads sink? Is the cause the angle or the norm of the key?",
        "{gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@smollm}% of SmolLM2's heads and"
        " {gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@gemma}% of Gemma's. In SmolLM2 the key's angle"
        " raises its score, and its norm lowers it.",
    ),
    (
        "[`gu/positions`, `repeat-bound`](sinkjax/papers/gu)",
        "Does index 0 make a sink? Does the bound for repeated tokens hold?",
        "The bounds hold, and with one token repeated SmolLM2 has no sink. No model with learned positions and a sink was at"
        " hand.",
    ),
    (
        "[`li/variance`, `isolate`, `amplify`](sinkjax/papers/li)",
        "Does the first token stand out because it averages nothing? Can any other token be made to stand out in the same way?",
        "SmolLM2: at position 10, a token that attends only to itself gets {li/isolate.sink@smollm=replicates} of a sink, and"
        " nearly as much if it averages all values it sees. Gemma: it gets none ({li/isolate.sink@gemma=differs}).",
    ),
    (
        "[`li/super-neurons`, `dominance`, `mediation`](sinkjax/papers/li)",
        "Which neurons make the massive activation? Does one dimension align all queries with the first key? Which of these links"
        " carries a sink?",
        "SmolLM2: patching four neurons of a token that sees only itself restores {li/mediation.neurons@smollm=replicates} of its"
        " activation and nearly all of its sink; patching its keys, {li/mediation.keys@smollm=replicates} of the sink (as with"
        " random weights); patching only its largest dim, {li/mediation.disparity@smollm=weaker}.",
    ),
    (
        "[`background/massive`, `elsewhere`, `patch`](sinkjax/papers/background)",
        "What happens when massive activations are removed or patched into another run? Which other tokens have them?",
        "SmolLM2: set to zero, they cost {background/massive.zero@smollm=replicates:effect}, held at their mean"
        " {background/massive.mean@smollm=replicates:effect}, and full stops have none. Gemma's cost"
        " {background/massive.zero@gemma=differs:effect} in layer 0, where they form, and up to {background/massive[each layer's"
        " largest dims to zero: layer 1][loss (nats per token)]@gemma:change} in later layers.",
    ),
    (
        "[`background/streaming`, `compression`, `quantise`](sinkjax/papers/background)",
        "What do sinks do to a window of keys, to the rank of hidden states, and to int8?",
        "SmolLM2: four first keys undo a window's damage of {background/streaming.window@smollm=weaker:effect}, and int8 errs"
        " {background/quantise.removed@smollm=replicates} less without the activation.",
    ),
    (
        "[`sinkjax.evaluate`](docs/in-use.md)",
        "What does a sink cost, and save, in a model that runs rounded or with few keys?",
        "SmolLM2: rounding activations to 8 bits, one scale per tensor, adds"
        " {in-use/SmolLM2-135M-Instruct/activations of 8 bits, one scale per tensor} nats, or"
        " {in-use/SmolLM2-135M-Instruct/activations of 8 bits, one scale per tensor, first token in full precision} if the first"
        " token is not rounded; `mini-softmax`: {in-use/mini-softmax/activations of 8 bits, one scale per tensor}, and"
        " `mini-head-norm`, with few sinks: {in-use/mini-head-norm/activations of 8 bits, one scale per tensor}. A cache of the"
        " last 16 keys adds {in-use/SmolLM2-135M-Instruct/window of 16 keys}, or"
        " {in-use/SmolLM2-135M-Instruct/4 first and 12 last keys} if 4 of the 16 are the first.",
    ),
    (
        "[`background/kinds`, `circuit`, `mechanism`](sinkjax/papers/background)",
        "Which sinks are no-ops, which are broadcast, and what does the model need of each? Do the first two blocks make the"
        " sink? What makes GPT-2's?",
        "SmolLM2: {background/kinds.more@smollm=replicates:whole}% of heads have a no-op sink; broadcast sinks are"
        " {background/kinds.more@smollm} rarer. Setting the values of the no-op sinks to zero changes the loss by"
        " {background/kinds.no-op@smollm=replicates:effect}; moving their weight to each query's own key, by"
        " {background/kinds[kind no-op, way diagonal][loss (nats per token)]@smollm:change} nats. Means in place of the first"
        " two blocks' outputs take {background/circuit.sink@smollm=weaker} of the sinks, in"
        " Gemma {background/circuit.sink@gemma=replicates}."
        " GPT-2 was not at hand.",
    ),
    (
        "[`background/windows`](sinkjax/papers/background)",
        "What do layers with a sliding window attend to once the first token has left it?",
        "Gemma, whose windows have 512 keys: a later key, whose activation is {background/windows.large@gemma:effect} as large"
        " as others'. It gets {background/windows.as-much@gemma=weaker} less attention than `<bos>` got before. If the dim of"
        " that activation is made ordinary in all later tokens, the strongest key gets"
        " {background/windows.needs@gemma=weaker} less.",
    ),
    (
        "[`trigger/one-layer`, `heads`, `assumptions`, `escapes`, `sizes`, `bound`](docs/trigger.md)",
        "Trained on a task with an exact solution: when is a sink necessary, and what does it cost to do without?",
        "By the theorem, softmax has to sink; it does (in {trigger/one-layer.softmax@trained=replicates:n} runs). ReLU need not"
        " and does not. Softmax with a gate or a sink logit need not, and does all the same; if BOS costs a little, the sink"
        " logit does not.",
    ),
    (
        "[`pretrain/mini`, `gu-norm`, `gu-bias`, `qiu-gates` and others](docs/pretraining.md)",
        "Language models trained from scratch, one change at a time: which choices make a sink?",
        "[At 340k parameters](docs/pretraining-340k.md) K biases remove {340k/k} of the sink, sigmoid {340k/sigmoid}, no BOS"
        " {340k/no-bos}, head-wise norms {340k/head-norm}, no decay {340k/decay-0}.",
    ),
    (
        "[`pretrain/hidden`, `released`, `optimisers`](docs/while-it-learns.md)",
        "Does a sink form later, or grow back, when it is hidden while a model learns? Which optimisers and norms grow a sink"
        " without a spike?",
        "8 seeds: if the first key is hidden until step 2,000 of 7,000, it ends with"
        " {learning/hidden until step 2,000/attention to token 1} of the attention"
        " ({learning/hidden until step 2,000/minus baseline} against the same seeds unhidden). In `mini-sink` a sink of"
        " {learning/hidden/at the beginning} falls to {learning/hidden/halfway} while it is hidden, and grows back to"
        " {learning/hidden/at the end} in as many steps. At one untuned rate each, all ten other"
        " optimisers, norms and heads end with a smaller sink ({learning/AdamW, pre-norm/attention to token 1} in the baseline)"
        " and a smaller spike: Muon"
        " ({learning/Muon/attention to token 1}), OrthoAdam ({learning/OrthoAdam/attention to token 1}), SGD"
        " ({learning/SGD with momentum/attention to token 1}, its loss higher by"
        " {learning/SGD with momentum/loss minus baseline} nats), and also sandwich norm"
        " ({learning/sandwich norm/attention to token 1}) and QK-norm ({learning/QK-norm/attention to token 1}), with"
        " which the sink stayed in a paper's larger models. Some of these sinks still grow; post-norm keeps most of the sink, not"
        " the spike.",
    ),
    (
        "[`emergence/causal`](docs/pretraining.md)",
        "In which order do the parts of a sink come about, and from which training step on do they matter?",
        "In eight runs of 7,000 steps a previous-token head comes first, at step"
        " {emergence/a head that attends to the previous token/step from which half of the change is made}; half of the change"
        " is made at {emergence/norm of the first token's value/step from which half of the change is made} in the first token's"
        " values, at {emergence/attention to the first token/step from which half of the change is made} in attention to it, and"
        " at {emergence/largest activation over the median/step from which half of the change is made} in its activation, over"
        " its own median. In logarithms values and attention show no order, and over the median of all positions attention and"
        " activation show none. Hiding the key costs"
        " {emergence/step 7000, key 0 masked/loss (nats per token)/effect} nats in the end.",
    ),
)


# After the findings, on both pages: the words, the models and where the rest is.
LEGEND = """Each line is a paper's claim and, in bold, its verdict under [one rule]({docs}judgements.md). The *whole* of the first
two is the attention to the first token without an edit; of the third, the softmax layer's attention to BOS. *Replicates*: more
than half of the whole; *weaker*: less than half; *differs*: entirely below a tenth of it, or opposite.
SmolLM2 and Gemma are 4-bit files. A head *sinks* with 0.3 of its attention on the first token;
{gu/sink-rate[natural text: no edit][heads that sink on key 0 (%)]@mini-softmax}% of `mini-softmax`'s do.
Controls: [findings]({docs}findings.md), [more]({docs}findings-more.md)."""


def lines(rows: Sequence[Mapping[str, str]], docs: str) -> str:
    """The findings as Markdown; docs: the path of the folder docs from the page."""
    parts = []
    for finding in FINDINGS:
        found = [row for row in rows if (row["study"], row["claim"]) == (finding.study, finding.claim)]
        told = [f"{model}: {_told(row)}" for given, model in MODELS.items() for row in found if is_in(row, [given]) and row["d"]]
        if not told:
            raise SystemExit(f"{CLAIMS} has no number of the claim {finding.claim!r} of {finding.study}")
        paper = found[0]["source"].partition(", ")[0]
        parts.append(f"*{paper}: {found[0]['statement']}* **{'; '.join(told)}.**")
        parts.append(f"![{finding.alt}]({docs}images/{finding.image})\n*{finding.caption}*")
    return "\n\n".join([*parts, filled(LEGEND.replace("{docs}", docs), rows)])


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """The studies, their questions and what was found, as a table."""
    head = ["| studies | question | found |", "|---|---|---|"]
    return filled("\n".join([*head, *(f"| {' | '.join(entries)} |" for entries in STUDIES)]), rows, ends=False)


def filled(text: str, rows: Sequence[Mapping[str, str]], *, ends: bool = True) -> str:
    """Text with its numbers, and the ends of their intervals: paragraphs are filled, lines of tables are not."""
    parts = [part.split("\n") if part.startswith("|") else [part] for part in text.split("\n\n")]
    return "\n\n".join("\n".join(_numbered(line, rows, ends) for line in part) for part in parts)


def _numbered(text: str, rows: Sequence[Mapping[str, str]], ends: bool) -> str:
    text = EMERGED.sub(lambda cell: _emerged(cell, ends), text)
    found = looked_up(IN_USE.sub(_in_use, LEARNING.sub(_learned, SMALL.sub(_taken, text))), rows, ends=ends)
    if not found:
        raise SystemExit(f"{CLAIMS} lacks a number of: {text}")
    return found.replace("\n", " ") if text.startswith("|") else found


def _taken(row: re.Match[str]) -> str:
    """The share of the sink that a row of the small model takes away."""
    page = (ROOT / "docs" / "pretraining-340k.md").read_text(encoding="utf-8")
    share = re.search(rf"share of token 1, mean over heads: softmax minus {row[1]}: [^|]*?; (\d+%) \[", page)
    if not share:
        raise SystemExit(f"docs/pretraining-340k.md has no share of the sink that {row[1]} takes")
    return share[1]


def _learned(cell: re.Match[str]) -> str:
    """The mean in a cell of a table of the page on learning."""
    page = (ROOT / "docs" / "while-it-learns.md").read_text(encoding="utf-8")
    for part in page.split("\n\n"):
        lines = [line.strip("| ").split(" | ") for line in part.splitlines()]
        for line in lines[2:]:
            if line[0] == cell[1] and cell[2] in lines[0]:
                return line[lines[0].index(cell[2])].partition(" ")[0]
    raise SystemExit(f"docs/while-it-learns.md has no cell {cell[0]}")


def _emerged(cell: re.Match[str], ends: bool) -> str:
    """A number of the study of emergence, with the ends of its interval if they are asked for."""
    with (ROOT / "docs" / "data" / "emergence" / "summary.csv").open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if (row["model"], row["measure"]) == (cell[1], cell[2])]
    if not found:
        raise SystemExit(f"docs/data/emergence/summary.csv has no number {cell[0]}")
    mean, low, high = (float(found[0]["effect_" * bool(cell[3]) + name]) for name in ("mean", "low", "high"))
    form = ",.0f" if abs(mean) >= 10 or low == high == 0 else ".1f" if abs(mean) >= 1 else ".3f"
    unit = "%" * (cell[2].endswith("(%)") and not cell[3])
    return f"{mean:{form}}{unit}" + f" [{low:{form}}, {high:{form}}]" * ends


def _in_use(cell: re.Match[str]) -> str:
    """What a way to run a model adds to its loss."""
    page = (ROOT / "docs" / "in-use.md").read_text(encoding="utf-8")
    own = page.partition(f"\n## {cell[1]}\n")[2].partition("\n## ")[0]
    found = re.search(rf"^\| {re.escape(cell[2])} \| \+?(-?[\d.]+)", own, re.MULTILINE)
    if not found:
        raise SystemExit(f"docs/in-use.md has no cell {cell[0]}")
    return found[1]


def _told(row: Mapping[str, str]) -> str:
    count = int(row["n"])
    few = f", {count} independent samples" if count < FEWEST else ""
    return f"{row['word']} ({numbers(row)}{' of the whole' * in_shares(row)}{few})"


def main() -> None:
    """Rewrite the pages."""
    with CLAIMS.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    made = {
        "README.md": {"findings": lines(rows, "docs/"), "studies": table(rows)},
        "docs/index.md": {"findings": lines(rows, "")},
    }
    made |= {page: {name: filled(text, rows) for name, text in texts.items()} for page, texts in PROSE.items()}
    for name, sections in made.items():
        page = ROOT / name
        text = page.read_text(encoding="utf-8")
        page.write_text(MARKED.sub(lambda part, made=sections: part[1] + made[part[2]], text), encoding="utf-8")


if __name__ == "__main__":
    main()
