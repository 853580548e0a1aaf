"""li/mediation: the share of an isolated token's sink and activation that each link of Li et al.'s chain carries.

Head outputs that are not an average, super neurons, one large dim, keys that lock in on it: each link gets the values that it has
in the isolated run, alone; each is taken out of the isolated run, with what follows free, or with all others held. Controls put
the isolated run's values of another token there. The first token stays a sink of equal strength in all of these, so two links are
also put in with key 0 hidden from later queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import xarray
from numpy.typing import NDArray

import sinkjax
from sinkjax import Capture, Edit, Site, compose, edit
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import positions
from sinkjax.model.config import Config
from sinkjax.papers._shared import hide_behind, see_only
from sinkjax.papers.background._massive import largest_dim
from sinkjax.papers.li._neurons import Neuron, largest, largest_neurons
from sinkjax.papers.li.isolate import later_sink_score
from sinkjax.study import *
from sinkjax.study import (
    Batch,
    Calculation,
    Numbers,
    Parts,
    Unedited,
    facts_of,
    from_results,
    largest_activation,
    later_attention_to,
    onset,
    same,
    strongest_later_attention,
)

ROUNDING = 1e-3
SPLIT = ("disparity", "keys")  # links that bring attention, which the first token shares


@dataclass(frozen=True, kw_only=True)
class Settings(Controlled, Mapped):
    prompts: int = 16
    position: int = 10
    """the token that is isolated, as in the paper"""
    seen: int = 5
    """the key that it sees where it is isolated by one other key"""
    early: int = 3
    """last of the early layers"""
    neurons: int = 4
    """how many of the largest neurons are the super neurons, in layers until the activation forms"""
    places: tuple[int, ...] = (6, 10, 16, 36)
    """tokens whose activation is predicted, one at a time"""
    keys: tuple[int, ...] = (0, 2, 5)
    """keys; such a token sees one of them at a time"""


def study(lab: Lab, s: Settings) -> None:
    """The links of the chain from isolation to the sink."""
    lab.needs("softmax", "causal mask", "MLP", "gated MLP", "MLP without experts")
    positions(s, "position", "seen", queries=1)
    score, size = later_sink_score(s.position), largest_activation(s.position)
    forms = lab.onset("forms", lambda layers: largest_activation(0, layers))
    neurons = largest_neurons(lab, s.neurons, forms)
    chain = Chain(s.position, s.seen, s.early, forms, lab.layers, neurons, lab.donor("dim", largest_dim, 0, of_edited=True))
    blank = chain.blank(lab.architecture, lab.prompts, s.length)
    apart = lab.donor("apart", lambda run: chain.under(run, chain.isolated()), blank, of_edited=True)
    plain = lab.donor("plain", lambda run: chain.under(run, compose()), blank, of_edited=True)

    def hold(link: str, run: Values, others: Values) -> Edit:
        """Put one link from one run, and the others from another."""
        return compose(*(edit for one in LINKS for edit in chain.put(one, run if one == link else others)))

    def other_token(rng: np.random.Generator, case: Layers) -> Edit:
        """Put a link's values of a random other position but the first, drawn for each prompt."""
        link, prompts = case["link"], apart["keys"].shape[1]
        source = rng.choice(np.delete(np.arange(1, s.length), s.position - 1), prompts)
        return compose(*chain.put(link, apart, source), label=f"{link} of positions {', '.join(map(str, source))}")

    columns, ways = (score, size), {ALL.at(kind=kind, window=window): (kind, window) for kind in KINDS for window in WINDOWS}
    alone_in = {case: chain.isolated(*way) for case, way in ways.items()}
    isolated = lab.sweep("isolated", alone_in, columns, title="isolated")
    dead = {case: compose(edit, *chain.put("neurons", plain)) for case, edit in alone_in.items()}
    silent = lab.sweep("silent", dead, columns, title="super neurons as unedited")
    away = hide_behind(0, s.position)
    put = {"nothing": (), "isolation": (chain.isolated(),), **{link: (*chain.put(link, apart),) for link in SPLIT}}
    in_place = {ALL.at(put=name): compose(*edits, away) for name, edits in put.items()}
    without_0 = lab.sweep("without-0", in_place, columns, title="key 0 hidden behind it")
    put_in = {ALL.at(link=link): compose(*chain.put(link, apart), label=link) for link in LINKS}
    alone = lab.sweep("alone", put_in, columns, other_token, title="one link put in")
    taken_out = {ALL.at(link=link): compose(chain.isolated(), *chain.put(link, plain)) for link in LINKS}
    without = lab.sweep("without", taken_out, columns, title="one link taken out")
    others_held = {ALL.at(link=link): compose(chain.isolated(), hold(link, plain, apart)) for link in LINKS}
    held = lab.sweep("held", others_held, columns, title="one link taken out, the others held")
    lab.noop(hold("keys", plain, plain).named("all links"))
    compute = partial(ignitions, s.neurons, s.places, s.keys, s.control_prompts)
    ignited = lab.calculate("ignitions", compute, VARIABLES, {"ignitions": [s.neurons, *s.places, *s.keys]}, s.prompts)

    whole, massive = isolated.at(kind="self", window="all"), reaches(largest_activation(0), isolated, MASSIVE_SIZE)
    formed = largest_activation(s.position, layer(forms, "the layer in which it forms"))
    source, on_super = "ours, on Li et al. 2026, the whole chain", "ours, on Li et al. 2026, super neurons"

    seen = (later_attention_to(0, lab.half), strongest_later_attention(0, lab.half))
    both = all_of(is_sink(seen[0], without_0, seen[1]), massive)

    def brings(measure: Measure, link: str, also: Measure, premise: Premise) -> None:
        """A link has the effect of isolation; beside it the other measure, and the loss without the link."""
        taken = [lost(one, sweep.at(link=link), whole) for sweep in (without, held) for one in (measure, also)]
        put = alone.at(link=link)
        lab.claim(link, source, part(measure, put, whole), premise, [part(also, put, whole), *taken], took=WRITTEN)

    lab.identity("variance", source, same(formed, alone.at(link="variance"), whole, ROUNDING))
    brings(size, "neurons", score, massive)
    brings(score, "disparity", size, both)
    brings(score, "keys", size, both)
    for link in SPLIT:
        put_in_alone, all_links, nothing = (without_0.at(put=name) for name in (link, "isolation", "nothing"))
        lab.claim(f"{link}-alone", source, part(score, put_in_alone, all_links, above=nothing), both, took=WRITTEN)
    kinds = [{"kind": kind, "window": "all"} for kind in KINDS[1:]]
    beside = [lost(size, silent.at(**kind), isolated.at(**kind)) for kind in kinds]
    lab.claim("needed", source, lost(size, without.at(link="neurons"), whole), massive, beside, took=WRITTEN)
    lab.claim("ignites", on_super, foretold(ignited), massive, [foretold(ignited, "plain_alignment")])

    for sweep in (alone, without):
        lab.draw(dots, score, size, over=sweep)
    for sweep in (isolated, silent):
        lab.draw(lines_along, "window", score, size, over=sweep, by="kind")
    conditions = [whole, *(sweep.at(link="neurons") for sweep in (alone, without))]
    lab.draw(by_layer, partial(largest_activation, s.position), conditions=conditions)
    lab.maps(whole, alone.at(link="keys"))


@from_results
def lost(read: Numbers, measure: Measure, where: Selection, whole: Selection) -> Parts:
    """The part of an isolation's effect on a measure that other conditions remove; the whole is the entire effect.

    Args:
        read: The results.
        measure: The compared measure.
        where: The conditions that take something out of the isolated run.
        whole: The isolated run.
    """
    apart, plain = read.edited(measure, whole), read.unedited(measure, whole)
    (span, unit), why = facts_of(measure), "the isolated run is the comparison"
    label = f"part of the effect of isolation on {measure.name} that is lost"
    return Parts(apart - read.edited(measure, where), None, apart - plain, span, unit, label, uncontrolled=why)


# Ignition of tokens: does alignment with the gates of super neurons foretell an activation?


VARIABLES = ("size", "alignment", "plain_alignment")


def ignitions(count: int, places: tuple[int, ...], keys: tuple[int, ...], few: int, model: Model, batch: Batch) -> xarray.Dataset:
    """Size of a token's activation if it sees only one other key, and its alignment with the gates of super neurons.

    Args:
        count: How many of the largest neurons count, in layers until the one where the first token's activation forms.
        places: Tokens, one at a time.
        keys: The other keys, one at a time; each comes before all tokens.
        few: Number of prompts that tell where the activation forms.
        model: The model.
        batch: The prompts.

    Returns:
        float[prompt, place, seen]: size, the logarithm of the largest |h|; alignment, the mean cosine of the neurons' gate
        vectors with the normed input of their MLPs; plain_alignment, the same without an edit.
    """
    forms = onset(Unedited(model, batch, few), model.config.layers, lambda layers: largest_activation(0, layers))
    neurons = largest(model, count, forms)
    found = {name: np.zeros((len(batch.lengths), len(places), len(keys))) for name in VARIABLES}
    for column, place in enumerate(places):
        found["plain_alignment"][:, column] = size_and_alignment(model, batch, sinkjax.compose(), place, neurons)[1][:, None]
        for row, other in enumerate(keys):
            size, aligned = size_and_alignment(model, batch, see_only(place, other), place, neurons)
            found["size"][:, column, row], found["alignment"][:, column, row] = size, aligned
    axes = ("prompt", "place", "seen")
    return xarray.Dataset({name: (axes, values) for name, values in found.items()}, {"place": [*places], "seen": [*keys]})


def size_and_alignment(
    model: Model, batch: Batch, edit: sinkjax.Edit, place: int, neurons: Sequence[Neuron]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the log of a token's largest |h|, and its mean cosine with neurons' gates: float[prompt] each."""
    layers = tuple(sorted({layer for layer, _ in neurons}))
    capture = sinkjax.Capture(sinkjax.Site.MLP_IN, layers=layers, positions=(place,), name="read")
    probe = sinkjax.Probe(resid_max=True, capture=(capture,))
    record = sinkjax.forward(model.params, batch.tokens, model.config, edit, probe, batch.lengths, logits=False).record
    states, gates, cosines = np.asarray(record["read"], np.float64)[:, :, 0], model.params["layers"]["gate"], []
    for layer, number in neurons:
        state, gate = states[:, layers.index(layer)], np.asarray(gates[layer, :, number], np.float64)
        cosines.append(state @ gate / (np.linalg.norm(state, axis=-1) * np.linalg.norm(gate)))
    return np.log(np.asarray(record["resid_max"])[:, :, place].max(axis=-1)), np.mean(cosines, axis=0)


def predicted(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """The squared error of y [prompt, ...] predicted by its mean, less that predicted by a line in x: float[prompt, 2].

    The mean and the line come from the other half of the prompts. The second column is the error of the mean.
    """
    half = np.arange(len(y)) < len(y) // 2
    found = np.zeros((len(y), 2))
    for tested in (half, ~half):
        trained = ~tested
        rise, start = np.polyfit(x[trained].ravel(), y[trained].ravel(), 1)
        by_mean = np.square(y[tested] - y[trained].mean())
        by_line = np.square(y[tested] - (start + rise * x[tested]))
        axes = tuple(range(1, y.ndim))
        found[tested] = np.stack([(by_mean - by_line).mean(axis=axes), by_mean.mean(axis=axes)], axis=-1)
    return found


@from_results
def foretold(read: Numbers, of: Calculation, by: Literal["alignment", "plain_alignment"] = "alignment") -> Parts:
    """Reduction in squared error, on the other half of the documents, of a line in the alignment compared with the mean.

    Args:
        read: The results.
        of: The `ignitions`.
        by: "alignment", in the run with the isolated token, or "plain_alignment", in the unedited run.
    """
    data, run = read.data(of.name), "the same run" if by == "alignment" else "the unedited run"
    gain, whole = predicted(data[by].values, data["size"].values).T
    label = f"squared error that alignment with the gates in {run} takes away"
    return Parts(gain, None, whole, None, "squared log", label, uncontrolled="the mean is the comparison")


# Links between an isolated token and its sink: edits that isolate it, and that put one run's values into another.


LINKS = ("variance", "neurons", "disparity", "keys")  # in the order of the chain
KINDS = ("self", "one other key", "even", "all but the first")
WINDOWS = ("early", "middle", "until it forms", "after it forms", "all")
Values = Mapping[str, NDArray[Any]]  # link -> its values at each position, [layer or neuron, prompt, position, ...]


@dataclass(frozen=True)
class Chain:
    """The chain from a token's isolation to its sink.

    Attributes:
        at: The token.
        seen: The key that it sees where it is isolated by one other key.
        early: The last of the early layers. If the activation forms by then, they end before the layer in which it does.
        forms: The layer in which the activation forms.
        layers: Number of layers of the model.
        neurons: The super neurons.
        dim: The dim of the massive activation.
    """

    at: int
    seen: int
    early: int
    forms: int
    layers: int
    neurons: Sequence[Neuron]
    dim: int

    def isolated(self, kind: str = "self", window: str = "all") -> Edit:
        """Isolate the token in some layers.

        Args:
            kind: "self" (it sees only itself), "one other key" (only `seen`), "even" (all keys get the same weight) or "all
                but the first" (key 0 is hidden from it).
            window: "early" (layers 0 to `early`), "middle" (from there to the one where the activation forms), "until it forms",
                "after it forms" or "all".
        """
        early = min(self.early, max(self.forms - 1, 0))
        layers = {
            "early": range(early + 1),
            "middle": range(min(early + 1, self.forms), self.forms + 1),
            "until it forms": range(self.forms + 1),
            "after it forms": self._after(),
            "all": range(self.layers),
        }
        keys = {
            "self": range(self.at),
            "one other key": [key for key in range(self.at + 1) if key != self.seen],
            "even": range(self.at + 1),
            "all but the first": [0],
        }
        return edit("logits", "set", 0.0 if kind == "even" else -np.inf, queries=self.at, keys=keys[kind], layers=layers[window])

    def _after(self) -> range:
        return range(min(self.forms + 1, self.layers - 1), self.layers)

    def under(self, run: Unedited, made: Edit) -> Values:
        """Return each link's values at every position under an edit.

        Returns:
            "variance": head outputs, float[layer, prompt, position, head, dim]. "neurons": float[neuron, prompt, position].
            "disparity": `dim` of the stream after each layer, float[layer, prompt, position, 1]. "keys": before the rotation,
            float[layer, prompt, position, key-value head, dim].
        """
        heads, keys = Capture(Site.HEAD_OUT, name="variance"), Capture(Site.KEY, name="keys")
        neurons = {f"neuron {layer} {number}": (layer, number) for layer, number in self.neurons}
        each = [Capture(Site.NEURON, layers=(at[0],), dims=(at[1],), name=name) for name, at in neurons.items()]
        found = run.captured(heads, keys, Capture(Site.RESID, dims=(self.dim,), name="disparity"), *each, edit=made)
        return found | {"neurons": np.stack([found.pop(name)[0, :, :, 0] for name in neurons])}

    def blank(self, architecture: Config, prompts: int, length: int) -> Values:
        """Return zeros of the shapes of `under`."""
        here, dim = (self.layers, prompts, length), architecture.head_dim
        shapes = (*here, architecture.heads, dim), (len(self.neurons), *here[1:]), (*here, 1), (*here, architecture.kv_heads, dim)
        return {link: np.broadcast_to(np.float32(0), shape) for link, shape in zip(LINKS, shapes, strict=True)}

    def put(self, link: str, run: Values, source: NDArray[np.intp] | None = None) -> list[Edit]:
        """Return the edits that put a link's values of a run at the token.

        Args:
            link: One of `LINKS`.
            run: `under` an edit.
            source: The position whose values each prompt gets; None for the token.
        """
        every = run[link]
        values = every[:, :, self.at] if source is None else every[:, np.arange(every.shape[1]), source]
        if link == "variance":
            return [edit("head_out", "set", values, layers=range(self.forms + 1), queries=self.at)]
        if link == "neurons":
            put = partial(edit, "neuron", "set", queries=self.at)
            each = zip(values, self.neurons, strict=True)
            return [put(value[:, None], layers=layer, dims=[number]) for value, (layer, number) in each]
        if link == "disparity":
            return [edit("resid", "set", values, layers=range(self.forms, self.layers), dims=[self.dim], queries=self.at)]
        return [edit("key", "set", values, layers=self._after(), keys=self.at)]
