"""Cards of models whose answers are known, next to these answers, and the cards on the docs.

    python scripts/cards.py run [NAME ...]   measure the cards that docs/results/data/cards.csv lacks (or those named)
    python scripts/cards.py page             docs/how-to/card-answers.md, the printed card of README.md from these files; a plan
    python scripts/cards.py numbers NAME     one card as JSON, for `run`, which compares shown cards with other processors

The models in HELD_OUT were named before a card of them was made; no threshold was changed after that.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from templates import given, page

import sinkjax
from sinkjax.cards import plan
from sinkjax.checkpoints.architectures import architecture
from sinkjax.checkpoints.model import Model
from sinkjax.data.corpora import passages
from sinkjax.model import params
from sinkjax.model.normalisers import NAMED
from sinkjax.model.positions import Learned
from sinkjax.report.markdown import table as markdown
from sinkjax.runtime.hardware import PLATFORMS

ROOT = Path(__file__).resolve().parents[1]
DATA, CARDS, PAGE = (ROOT / "docs" / name for name in ("results/data/cards.csv", "results/data/cards", "how-to/card-answers.md"))
TRAINED = ROOT / "docs/results/data/cards-trained"
PLAN, PLANNED = "llama-3.1-8b", ROOT / "docs/results/data/card-plan-llama-3.1-8b.txt"
PRINTED, HEADINGS = ROOT / "docs/results/data/card-smollm2-135m.txt", ("sinks", "activation", "depends on", "made by", "costs")
SHOWN = ("smollm2-135m", "gemma3-270m", "mini-softmax", "mini-head-norm", "mini-sigmoid")  # whose cards are on the docs
PROCESSORS = ("AVX2", "SSE4_2")  # XLA's names of older instruction sets, whose round-off is that of other processors
NUMBER = re.compile(r"[-+]?\d[\d.,]*(e[-+]\d+)?%?")
PROMPTS, LENGTH = 16, 48
ANY, TOKENS, POSITION, NO_KEY, NOTHING = (
    "any token that sees only itself",
    "tokens",
    "position",
    "a key without a token",
    "nothing",
)
HELD_OUT = (
    "mini-head-norm",
    "untrained mini-head-norm",
    "planted sink logit 5",
    "planted neuron 3",
    "planted tokens 3",
    "BOS at position 3",
    "planted key 1",
    "planted position 3",
)


@dataclass(frozen=True)
class Case:
    """A model and its known answer.

    make: returns the model and the text of the card. truth: what is known of the answer; a field that is not known is missing.
    """

    make: Callable[[], tuple[Model, Any]]
    truth: Mapping[str, Any]
    why: str


def packaged(name: str) -> tuple[Model, Any]:
    """A model that is loaded by its name, on the packaged text."""
    return sinkjax.load(name), "packaged"


def changed(name: str, change: Callable[[Model, dict[str, Any]], None], text: Any = "packaged") -> tuple[Model, Any]:
    """A packaged model with some of its parameters changed in place."""
    model = sinkjax.load(name)
    arrays = jax.tree.map(np.array, dict(model.params))
    change(model, arrays)
    return Model(model.config, jax.tree.map(jnp.asarray, arrays), model.tokenizer, {**model.source, "name": "planted"}), text


def ids(model: Model, place: int | None, tokens: tuple[int, ...] = ()) -> np.ndarray:
    """Packaged text with its BOS at one position, or nowhere; or with several tokens in turn."""
    texts = passages("packaged", PROMPTS, length=500).texts
    found, _ = sinkjax.encode(model, texts, bos="none", length=LENGTH)
    if place is not None:
        found[:, place] = np.resize(tokens or (model.tokenizer.bos,), len(found))
    return found


def at(place: int | None, tokens: tuple[int, ...] = ()) -> tuple[Model, Any]:
    """`mini-softmax` on text with its BOS at one position, or nowhere."""
    model = sinkjax.load("mini-softmax")
    return model, ids(model, place, tokens)


def sink_logit(size: float) -> tuple[Model, Any]:
    """Random weights with a sink logit of one size in each head."""
    config = replace(sinkjax.load("mini-softmax").config, normaliser=NAMED["sink-logit"])
    drawn = params.init(config, seed=0)
    drawn["layers"]["normaliser"] = jax.tree.map(lambda leaf: jnp.full_like(leaf, size), drawn["layers"]["normaliser"])
    return Model(config, drawn, None, {"kind": "arrays", "name": "planted"}), drawn_ids(0)


def drawn_ids(seed: int) -> np.ndarray:
    """Random token ids."""
    return np.random.default_rng(seed).integers(3, 512, (PROMPTS, LENGTH))


def neuron(layer: int, number: int, dim: int) -> tuple[Model, Any]:
    """`mini-softmax` with a neuron that only BOS activates, which adds 80 to a dim: Its inputs separate BOS from other tokens."""

    def change(model: Model, arrays: dict[str, Any]) -> None:
        probe = sinkjax.Probe(capture=[sinkjax.Capture("mlp_in", layers=[layer], name="x")])
        x = np.asarray(sinkjax.forward(model, ids(model, 0), probe=probe, logits=False).record["x"], float)[:, 0]
        others = x[:, 1:].reshape(-1, x.shape[-1])
        w = np.linalg.solve(others.T @ others / len(others) + 0.01 * np.eye(x.shape[-1]), x[:, 0].mean(axis=0))
        w *= 9.0 / (x[:, 0].mean(axis=0) @ w)
        block = arrays["layers"]
        block["gate"][layer, :, number] = block["up"][layer, :, number] = w
        block["down"][layer, number] = 0.0
        block["down"][layer, number, dim] = 80.0 / 81.0

    model, _ = changed("mini-softmax", change)
    return model, ids(model, 0)


def dims(dim: int) -> tuple[Model, Any]:
    """`mini-softmax` with a large number in BOS's embedding; on text with BOS, which no longer lowers the loss."""

    def change(model: Model, arrays: dict[str, Any]) -> None:
        arrays["embed"][model.tokenizer.bos, dim] = 400.0

    model, _ = changed("mini-softmax", change)
    return model, ids(model, 0)


def tokens(others: tuple[int, ...], alternate: bool = False) -> tuple[Model, Any]:
    """`mini-softmax` in which other tokens have BOS's embedding."""

    def change(model: Model, arrays: dict[str, Any]) -> None:
        arrays["embed"][list(others)] = arrays["embed"][model.tokenizer.bos]

    model, text = changed("mini-softmax", change)
    return model, ids(model, 0, (0, *others)) if alternate else text


def key(place: int, token: int | None) -> tuple[Model, Any]:
    """Random weights, a dim that every query reads, and one that the keys of a token or of a position have."""
    config = sinkjax.load("mini-softmax").config
    config = config if token is not None else replace(config, position=Learned())
    arrays = jax.tree.map(np.array, params.init(config, seed=1))
    arrays["embed"] = np.random.default_rng(1).standard_normal(arrays["embed"].shape).astype(np.float32)
    arrays["embed"][:, 0] = 8.0
    arrays["embed"][:, 1] = 0.0
    for name, dim in (("q", 0), ("k", 1)):
        arrays["layers"][name][:, dim, :, -1] = 2.5
    text = drawn_ids(1)
    if token is not None:
        arrays["embed"][token, 1] = 8.0
        text[text == token] += 1
        text[:, place] = token
    else:
        arrays["positions"][:, :2] = 0.0
        arrays["positions"][place, 1] = 8.0
    return Model(config, jax.tree.map(jnp.asarray, arrays), None, {"kind": "arrays", "name": "planted"}), text


BOS = {"kind": TOKENS, "position": 0, "among": [0]}
NONE = {"kind": NOTHING}
CASES: dict[str, Case] = {
    "smollm2-135m": Case(partial(packaged, "smollm2-135m"), {"kind": ANY, "position": 0, "dim": 507}, "findings"),
    "gemma3-270m": Case(partial(packaged, "gemma3-270m"), {"kind": TOKENS, "position": 0, "among": [2]}, "findings"),
    "mini-softmax": Case(partial(packaged, "mini-softmax"), BOS, "trained with BOS first in each block"),
    "mini-sigmoid": Case(partial(packaged, "mini-sigmoid"), NONE, "rows do not compete"),
    "mini-head-norm": Case(partial(packaged, "mini-head-norm"), BOS, "12% of its heads sink on BOS"),
    **{
        f"untrained {name}": Case(partial(packaged, f"untrained:{name}"), NONE, "random weights")
        for name in ("mini-softmax", "mini-sigmoid", "mini-head-norm")
    },
    "planted sink logit 8": Case(partial(sink_logit, 8.0), {"kind": NO_KEY}, "exp(8) among 48 keys"),
    "planted sink logit 5": Case(partial(sink_logit, 5.0), {"kind": NO_KEY}, "exp(5) among 48 keys"),
    "planted sink logit -2": Case(partial(sink_logit, -2.0), NONE, "exp(-2) among 48 keys"),
    **{
        f"planted neuron {number}": Case(
            partial(neuron, *place), {"weight": list(place), "dim": place[2]}, "only BOS activates it"
        )
        for number, place in enumerate([(1, 20, 7), (2, 101, 30), (2, 6, 51), (3, 77, 12)])
    },
    "planted dim 5": Case(partial(dims, 5), {"dim": 5, "maker": "embedding"}, "in BOS's embedding"),
    "planted dim 40": Case(partial(dims, 40), {"dim": 40, "maker": "embedding"}, "in BOS's embedding"),
    **{
        f"planted tokens {len(more)}": Case(
            partial(tokens, more), {"kind": TOKENS, "position": 0, "among": [0, *more]}, "with BOS's embedding"
        )
        for more in ((300,), (90, 400), (77, 222, 333))
    },
    "two BOS": Case(
        partial(tokens, (310,), True), {"kind": TOKENS, "position": 0, "among": [0, 310]}, "each first in half of the prompts"
    ),
    "BOS at position 2": Case(partial(at, 2), {"kind": TOKENS, "position": 2, "among": [0]}, "mini-softmax"),
    "BOS at position 3": Case(partial(at, 3), {"kind": TOKENS, "position": 3, "among": [0]}, "mini-softmax"),
    "text without BOS": Case(partial(at, None), NONE, "mini-softmax"),
    "planted key 0": Case(partial(key, 0, 100), {"kind": TOKENS, "position": 0, "tokens": [100]}, "a token's embedding"),
    "planted key 1": Case(partial(key, 5, 200), {"kind": TOKENS, "position": 5, "tokens": [200]}, "a token's embedding"),
    "planted position 0": Case(partial(key, 0, None), {"kind": POSITION, "position": 0}, "a position's vector"),
    "planted position 3": Case(partial(key, 3, None), {"kind": POSITION, "position": 3}, "a position's vector"),
}


def answer(card: sinkjax.Card) -> dict[str, Any]:
    """The fields of a card that a truth may have."""
    made, kind = card.maker, card.cause.kind
    return {
        "kind": kind,
        "position": card.where.position,
        "tokens": sorted(token for token, _ in card.cause.tokens),
        "dim": card.where.activation.dim,
        "weight": None if isinstance(made, str) else list(made.weight),
        "maker": made.split(":")[0].removeprefix("the ") if isinstance(made, str) else made.part,
    }


def errors(truth: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """The fields in which an answer differs from the truth; tokens that are known to sink must be among those of the card."""
    wrong = [name for name, value in truth.items() if name != "among" and found[name] != value]
    return wrong + ["tokens"] * (not {*truth.get("among", ())} <= {*found["tokens"]})


def extra(truth: Mapping[str, Any], found: Mapping[str, Any]) -> int:
    """The number of tokens that a card claims to sink, and that are not known to; 0 if no token is known."""
    known = truth.get("among", truth.get("tokens"))
    return len({*found["tokens"]} - {*known}) if known else 0


def run(*names: str) -> None:
    """Measure cards, and save the answers after each."""
    known = set() if not DATA.exists() else {*pd.read_csv(DATA, keep_default_na=False)["model"]}
    for name in names or [name for name in CASES if name not in known]:
        case = CASES[name]
        begun = time.process_time()
        card = made(name)
        seconds = time.process_time() - begun
        print(keep(name, card, case.truth, case.why, name in HELD_OUT), flush=True)
        if name in SHOWN:
            CARDS.mkdir(exist_ok=True)
            kept = {"lines": card.lines(), "mask": card.mask, "answer": answer(card), "prompts": card.prompts}
            kept |= {"clamp": card.clamp(), "seconds": round(seconds), "compared": agreeing(name, card)}
            (CARDS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def made(name: str) -> sinkjax.Card:
    """The card of a case."""
    model, text = CASES[name].make()
    size = {} if name in SHOWN[:2] else {"prompts": PROMPTS, "length": LENGTH}
    return sinkjax.card(model, text, log=partial(print, flush=True, file=sys.stderr), **size)


def numbers(name: str) -> None:
    """Print a card as JSON."""
    print(json.dumps(as_numbers(made(name))))


def as_numbers(card: sinkjax.Card) -> dict[str, Any]:
    """A card's fields and lines, as JSON."""
    return json.loads(json.dumps({"card": asdict(replace(card, prefix=None)), "lines": card.lines()}))


def agreeing(name: str, card: sinkjax.Card) -> list[str]:
    """The instruction sets with which the card says the same, and has numbers within the intervals; raise if one differs."""
    own = as_numbers(card)
    for each in PROCESSORS:
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={each}"
        command = [sys.executable, __file__, "numbers", name]
        text = subprocess.run(command, env={**os.environ, "XLA_FLAGS": flags}, stdout=subprocess.PIPE, check=True).stdout
        if wrong := disagreements(own, json.loads(text)):
            raise SystemExit(f"{name} differs with {each}: {'; '.join(wrong)}")
    return list(PROCESSORS)


def disagreements(one: Any, other: Any, place: str = "") -> list[str]:
    """Means that are not in the interval of the other, and lines whose words differ; other fields may differ by rounding."""
    if isinstance(one, dict) and isinstance(other, dict) and one.get("low") is not None and other.get("low") is not None:
        inside = all(a["low"] <= b["mean"] <= a["high"] for a, b in ((one, other), (other, one)))
        return [] if inside else [f"{place} is {one['mean']} and {other['mean']}"]
    if isinstance(one, dict) and isinstance(other, dict):
        return [entry for name in one for entry in disagreements(one[name], other.get(name), f"{place}.{name}".lstrip("."))]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [entry for number, (a, b) in pairs for entry in disagreements(a, b, f"{place}[{number}]")]
    if isinstance(one, str) and isinstance(other, str) and NUMBER.sub("#", one) == NUMBER.sub("#", other):
        return []
    same = one == other or (isinstance(one, int | float) and isinstance(other, int | float))
    return [] if same else [f"{place} is {one!r} and {other!r}"]


def keep(name: str, card: sinkjax.Card, truth: Mapping[str, Any], why: str, held_out: bool) -> str:
    """Put an answer next to its truth in the file, and say it. Trained models come after those of `CASES`."""
    known = pd.read_csv(DATA, keep_default_na=False) if DATA.exists() else pd.DataFrame(columns=["model"])
    found = answer(card)
    row = {"model": name, "held_out": held_out, "why": why, "heads": f"{len(card.where.heads)}/{card.where.of}"}
    row |= {"truth": json.dumps(truth), "answer": json.dumps(found), "errors": ", ".join(errors(truth, found))}
    place = {each: number for number, each in enumerate(CASES)}
    known = pd.concat([known[known["model"] != name], pd.DataFrame([row])])
    known = known.sort_values("model", key=lambda column: column.map(place).fillna(len(place)), kind="stable")
    DATA.parent.mkdir(parents=True, exist_ok=True)
    known.to_csv(DATA, index=False)
    return f"{name}: {row['answer']} {row['errors'] or 'right'}"


def write_page() -> None:
    """Write the page from the file."""
    known = pd.read_csv(DATA, keep_default_na=False)
    lines = []
    for row in known.to_dict("records"):
        truth, found = json.loads(row["truth"]), json.loads(row["answer"])
        fields = ["tokens" if name == "among" else name for name in truth or ("kind", "position")]
        stated = said({name: found[name] for name in fields})
        lines.append([row["model"], because(row), "yes" if row["held_out"] else "", said(truth) or "undecided", stated])
        more = f"; extra tokens: {extra(truth, found)}" if extra(truth, found) else ""
        lines[-1].append((row["errors"] or "none") + more if truth else "-")
    numbers = {
        **tallies(known),
        **extras(known),
        "table": markdown(["model", "known because", "held out", "known answer", "card", "errors"], lines),
        "cards": "\n\n".join(shown(name) for name in SHOWN if (CARDS / f"{name}.json").exists()),
    }
    PAGE.write_text(page("card-answers.md", given(numbers)), encoding="utf-8")
    lines = json.loads((CARDS / f"{SHOWN[0]}.json").read_text(encoding="utf-8"))["lines"]
    PRINTED.write_text("".join(f"{name:11} {text}\n" for name, text in lines if name in HEADINGS), encoding="utf-8")
    PLANNED.write_text("".join(f"{name:37} {text}\n" for name, text in plan_lines()), encoding="utf-8")


def tallies(known: pd.DataFrame) -> dict[str, str]:
    """How many cards are right of all, of those held out and of the trained models; the names of the wrong and the undecided."""
    judged, trained = known["truth"] != "{}", known["model"].str.startswith("trained ")
    wrong = judged & (known["errors"] != "")

    def of(which: pd.Series) -> str:
        return f"{int((which & judged & ~wrong).sum())} of {int((which & judged).sum())}"

    def named(which: pd.Series) -> str:
        return ", ".join(f"`{name}`" for name in known["model"][which]) or "none"

    return {
        "right": of(judged),
        "held": of(known["held_out"].astype(bool)),
        "trained": of(trained),
        "wrong": named(wrong),
        "undecided": named(~judged),
    }


def extras(known: pd.DataFrame) -> dict[str, str]:
    """How many tokens the cards claim beyond the known ones, by model; and the versions that made the cards of trained models."""
    answers = [(row["model"], json.loads(row["truth"]), json.loads(row["answer"])) for row in known.to_dict("records")]
    judged = [(model, len(found["tokens"]), extra(truth, found)) for model, truth, found in answers if truth]
    made = [json.loads(path.read_text(encoding="utf-8"))["versions"]["sinkjax"] for path in sorted(TRAINED.glob("*.json"))]
    return {
        "extra": f"{sum(more for *_, more in judged)} of {sum(named for _, named, _ in judged)}",
        "by_model": ", ".join(f"`{model}` {more}" for model, _, more in judged if more) or "none",
        "versions": " and ".join(sorted({*made})),
    }


def because(row: Mapping[str, Any]) -> str:
    """Why an answer is known; of a trained model, also the sink rates in its training's log."""
    path = TRAINED / f"{str(row['model']).removeprefix('trained ')}.json"
    if not path.exists() or row["model"].startswith("untrained "):
        return str(row["why"])
    end = json.loads(path.read_text(encoding="utf-8"))["end"]
    place = int(np.argmax(end["sink"]))
    return f"{row['why']}; sink rate in its log: {end['sink'][place]:.2f} (position {place}), {end['sink_bias']:.2f} (no key)"


def plan_lines() -> list[tuple[str, str]]:
    """The plan of a card of an 8B model, whose weights are not read, and its time on an H100 at the rates of the data sheet."""
    config, h100 = architecture(PLAN).config, PLATFORMS["h100"]
    size = {"prompts": 32, "length": 64, "bos": True}
    base, whole = (plan.flops(config, **size, more=more) for more in (False, True))
    times = [f"{base / rate:.2g} s, or {whole / rate:.2g} s with --cost, in {dtype}" for dtype, rate in h100.rates.items()]
    return [*plan.lines(config, **size, dtype="bfloat16"), *(("H100 at its peak rate", time) for time in times[:2])]


def said(fields: Mapping[str, Any]) -> str:
    """An answer in a cell."""
    return "; ".join(f"{name} {json.dumps(value) if not isinstance(value, str) else value}" for name, value in fields.items())


def shown(name: str) -> str:
    """A card as its lines."""
    kept = json.loads((CARDS / f"{name}.json").read_text(encoding="utf-8"))
    lines = "\n".join(f"{heading:11} {text}" for heading, text in kept["lines"])
    size, seconds = kept["prompts"], kept["seconds"]
    about = (
        f"{size['number']} prompts of {size['length']} tokens; {seconds} s of processor time on two busy cores, with compilation."
    )
    if kept.get("compared"):
        about += f" Compared with {' and '.join(kept['compared'])}."
    return f"### {name}\n\n{about}\n\n```text\n{lines}\n```"


if __name__ == "__main__":
    {"run": run, "numbers": numbers, "page": write_page}[sys.argv[1]](*sys.argv[2:])
