"""kiya/predictions: what three interventions do, predicted from tokens alone before any model is edited, then measured.

A token that sees only itself computes the same as that token alone. So a scan of single tokens (kiya/scan) predicts whether it
becomes a sink once it is the first visible one, is isolated, or takes the first one's place. The predictions in
docs/results/data/predictions were committed before any sweep ran. Two controls could defeat this cause: the same tokens put into
a text but not isolated (identity without isolation), and a text's own tokens whose attention rows are permuted (neither).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax import Capture, Edit, Site, attend_self, compose, edit, mask_key, swap_embeddings
from sinkjax.analysis import intervals
from sinkjax.analysis.summary import Row
from sinkjax.config_files.checks import positions
from sinkjax.papers._shared import exact_rows, hide_behind
from sinkjax.papers.background.elsewhere import rows_of
from sinkjax.papers.kiya.scan import HALF, chosen, compared
from sinkjax.report.figures.dots import Cloud, scatter
from sinkjax.report.section import Drawing
from sinkjax.study import *
from sinkjax.study import later_attention_to, strongest_later_attention

FACTS = ("tokens", "texts", "ratios")
Measured = Callable[[Numbers], "NDArray[Any]"]  # the share of every prediction, from the stores
SHARE = "attention at half depth, as a share of the unedited attention to key 0"


@dataclass(frozen=True, kw_only=True)
class Settings(Sinks):
    prompts: int = 16
    positions: tuple[int, ...] = (1, 4, 8, 16, 32)
    """where a text's own token is isolated, or changes places with the first one"""
    tokens: int = 200
    """how many tokens are put at one position and isolated there: up to half of them exceptions, the others drawn"""
    place: int = 8
    """that position"""
    token_prompts: int = 4
    """number of prompts for these"""
    scanned: int | Literal["all"] = 50_000
    """how many tokens are run alone, drawn by the seed, next to every special one; "all" is the whole vocabulary"""
    distance: int = 16
    """positions between a token's key and the query that reads it"""

    def check(self) -> None:
        positions(self, "positions", "place")


@dataclass(frozen=True)
class Prediction:
    """The predicted outcome of an intervention.

    Attributes:
        intervention: Name of the sweep.
        case: The condition.
        document: Index of the prompt; None for the mean over prompts, of a token that is put into them.
        token: The token whose sink is predicted.
        text: Its text.
        ratio: Its largest |h| alone, over the first token's.
    """

    intervention: str
    case: Layers
    document: int | None
    token: int
    text: str
    ratio: float

    @property
    def sink(self) -> bool:
        """Whether the token is predicted to become a sink."""
        return self.ratio > HALF

    @property
    def label(self) -> str:
        """Name of its row in the summary and in the file of predictions."""
        where = "" if self.document is None else f", document {self.document}, position {self.case['position']}"
        return f"{self.intervention}{where}, token {self.token} {self.text!r}"


def study(lab: Lab, s: Settings) -> None:
    """Predictions from tokens alone."""
    lab.needs("softmax", "causal mask", "embedding without positions")
    config = lab.architecture
    count = min(s.tokens, config.vocab_size or 0)
    predicted = lab.value("predicted", partial(predict, s), dict[str, Any](tokens=[*range(count)]))
    rows = lab.donor("rows", lambda run: rows_of(run.model, predicted["tokens"]), np.zeros((count, config.width)))
    even = np.full((config.layers, lab.prompts, config.heads, len(s.positions), s.length), np.float32(1 / s.length))
    weights = lab.donor("weights", lambda run: rows_at(s.positions, run), even)

    def permuted(number: int, position: int) -> Edit:
        """Give a query its own attention weights, on its keys in a random order for each layer, prompt and head."""
        row = weights[..., number, :].copy()
        row[..., : position + 1] = lab.rng(f"keys of position {position}").permuted(row[..., : position + 1], axis=-1)
        return compose(edit("weights", "set", row, queries=position, label="row permuted"), hide_behind(0, position))

    seen, whole = own("position", partial(later_attention_to, layer=lab.half)), later_attention_to(0, lab.half)
    masked = lab.sweep("masked", {ALL.at(position=1): mask_key(0)}, [whole, seen], title="key 0 masked")
    alone = lab.sweep("isolated", {ALL.at(position=p): isolated(p) for p in s.positions}, [whole, seen], title="isolated")
    swapped = lab.sweep("swapped", {ALL.at(position=p): swap_embeddings(0, p) for p in s.positions}, [whole], title="swapped")
    pairs = zip(predicted["tokens"], rows, strict=True)
    put = {ALL.at(token=token): edit("embed", "set", row, queries=s.place) for token, row in pairs}
    tokens = {case: compose(made, isolated(s.place)) for case, made in put.items()}
    in_context = {case: compose(made, hide_behind(0, s.place)) for case, made in put.items()}
    there = later_attention_to(s.place, lab.half)
    placed = lab.sweep("placed", tokens, [whole, there], prompts=s.token_prompts, title="put there and isolated")
    context = lab.sweep("context", in_context, [whole, there], prompts=s.token_prompts, title="put there, not isolated")
    own_rows = {ALL.at(position=p): permuted(number, p) for number, p in enumerate(s.positions)}
    shuffled = lab.sweep("permuted", own_rows, [whole, seen], title="row permuted, not isolated")
    sweeps = {"masked": (masked, seen), "isolated": (alone, seen), "swapped": (swapped, whole), "placed": (placed, there)}
    sweeps |= {"context": (context, there), "permuted": (shuffled, seen)}

    every = predictions(predicted, s)
    measured = partial(shares, every, sweeps, whole)
    lab.describe("sink", "the premise", lambda read: premise(read, masked, whole, strongest_later_attention(0, lab.half)))
    for name in sweeps:
        lab.describe(name, "ours", partial(counts, name, every, measured))
    lab.describe("each", "ours", partial(each_one, every, measured))
    lab.draw(partial(predicted_and_measured, every, measured), placed)


def isolated(position: int) -> Edit:
    """Let a token see only itself, and hide the first key, its equal competitor, from all queries behind it."""
    return compose(attend_self(position), hide_behind(0, position))


def rows_at(positions: tuple[int, ...], run: Unedited) -> NDArray[Any]:
    """Return the unedited attention weights of some queries: float[layer, prompt, head, position, key]."""
    found = run.captured(Capture(Site.WEIGHTS, positions=positions, name="weights"))["weights"]
    return np.asarray(np.nan_to_num(found))  # NaN: beyond a prompt


def predict(s: Settings, run: Unedited) -> dict[str, Any]:
    """Predict every outcome from a scan of single tokens; nothing is edited.

    Args:
        s: The study's settings.
        run: The model and the prompts.

    Returns:
        "tokens", "texts", "ratios": the tokens that are put at a position, up to half of them exceptions to what most tokens do.
        "documents": of each prompt, its own tokens' ids, texts and ratios at position 1 and at `positions`.
    """
    model, batch = run.model, run.batch
    places = [*dict.fromkeys((1, *s.positions))]
    own_tokens = np.asarray(batch.tokens)[:, places]
    drawn = chosen(model, s.scanned, s.seed)
    ids = np.union1d(drawn, own_tokens)
    data = sinkjax.scan(model, ids, text=batch.tokens, lengths=batch.lengths, distance=s.distance, eps=s.eps)
    alone, rng = compared(data), intervals.generator(s.seed, "kiya/predictions tokens")
    candidates = np.flatnonzero(np.isin(ids, drawn))
    most = alone.makes[candidates].mean() > HALF
    odd, usual = (candidates[(alone.makes[candidates] == most) == kind] for kind in (False, True))
    few = min(len(odd), max(s.tokens // 2, s.tokens - len(usual)))
    counts = ((odd, few), (usual, min(s.tokens - few, len(usual))))
    put = np.concatenate([rng.choice(kind, count, replace=False) for kind, count in counts])
    text = data["text"].values if "text" in data.coords else ids.astype(str)
    rows = np.searchsorted(ids, own_tokens)

    def facts(where: NDArray[Any]) -> dict[str, Any]:
        return {"tokens": ids[where].tolist(), "texts": text[where].tolist(), "ratios": alone.ratio[where].tolist()}

    return {**facts(put), "documents": {"positions": places, **facts(rows)}, "scanned": len(ids), "layer": alone.layer}


def predictions(predicted: dict[str, Any], s: Settings) -> list[Prediction]:
    """List every prediction.

    Args:
        predicted: The result of `predict`; on placeholders it has tokens alone, and the list is empty.
        s: The study's settings.
    """
    if "documents" not in predicted:
        return []
    documents, found = predicted["documents"], []
    for name, places in {"masked": (1,), **dict.fromkeys(("isolated", "swapped", "permuted"), s.positions)}.items():
        for place in places:
            column = documents["positions"].index(place)
            own_tokens = zip(*([row[column] for row in documents[what]] for what in FACTS), strict=True)
            found += [Prediction(name, ALL.at(position=place), number, *facts) for number, facts in enumerate(own_tokens)]
    put = [*zip(*(predicted[what] for what in FACTS), strict=True)]
    return found + [Prediction(name, ALL.at(token=facts[0]), None, *facts) for name in ("placed", "context") for facts in put]


def shares(every: list[Prediction], sweeps: dict[str, tuple[Sweep, Measure]], whole: Measure, read: Numbers) -> NDArray[Any]:
    """Return the attention to each predicted token, as a share of the unedited attention to the first key: float[prediction]."""
    shares = []
    for prediction in every:
        sweep, measure = sweeps[prediction.intervention]
        values = read.value(measure, sweep, prediction.case) / read.first(whole, sweep).mean()
        shares.append(values.mean() if prediction.document is None else values[prediction.document])
    return np.asarray(shares)


def premise(read: Numbers, sweep: Sweep, *measures: Measure) -> list[Row]:
    """The sink whose move is predicted: attention to key 0, and to the strongest other key."""
    return exact_rows("no edit", "no edit", {measure.name: read.first(measure, sweep).mean() for measure in measures})


def counts(name: str, every: list[Prediction], measured: Measured, read: Numbers) -> list[Row]:
    """Count the right and the wrong predictions of an intervention."""
    of = np.array([one.intervention == name for one in every])
    sink, found = np.array([one.sink for one in every])[of], measured(read)[of] > HALF
    numbers = {"predictions": of.sum(), "right": (sink == found).sum()}
    for kind, predicted in {"a sink predicted": sink, "no sink predicted": ~sink}.items():
        numbers |= {kind: predicted.sum(), f"{kind}, and right": (predicted & (sink == found)).sum()}
    return exact_rows(name, name, numbers)


def each_one(every: list[Prediction], measured: Measured, read: Numbers) -> list[Row]:
    """List the measured share of every prediction."""
    pairs = zip(every, measured(read), strict=True)
    return [row for one, share in pairs for row in exact_rows(one.label, f"{one.intervention}, one by one", {SHARE: share})]


def predicted_and_measured(every: list[Prediction], measured: Measured, read: Numbers, sweep: Sweep) -> Drawing:
    """Draw the attention that each token receives against its activation alone."""
    titles = {
        "masked": "key 0 masked: the second token",
        "isolated": "isolated: the text's own token",
        "swapped": "swapped: the new first token",
        "placed": "put into texts and isolated",
        "context": "control: put into texts, not isolated",
        "permuted": "control: the text's own token, its row permuted",
    }
    dots = np.array([[one.ratio for one in every], measured(read)])
    name_of = np.array([one.intervention for one in every])
    clouds = [Cloud(title, *dots[:, name_of == name]) for name, title in titles.items()]
    figure = scatter({"": clouds}, "largest |h| alone, over the first token's", "attention, over the first key's", log="x")
    caption = f"Attention to each token over that to key 0, against its activation alone; above {HALF:g} a sink was predicted."
    return read.drawing("predicted-and-measured", figure, caption, sweep.name, bands=False)
