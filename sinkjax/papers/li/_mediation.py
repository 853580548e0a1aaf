"""Links between an isolated token and its sink: patch one run's values into another, or remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.papers.li._super_neurons import Neuron, largest
from sinkjax.studies.known import Unedited, onset
from sinkjax.studies.readings import Parts, ends_of, facts_of
from sinkjax.studies.readouts import largest_activation
from sinkjax.studies.vocabulary import At, Computation, Contrast, EditWord, F, Known, Measure, Readings, see_only

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.studies.scope import Scope
    from sinkjax.studies.study import Batch

LINKS = ("variance", "neurons", "disparity", "keys")  # in the order of the chain
KINDS = ("self", "one other key", "even", "all but the first")
WINDOWS = ("early", "middle", "until it forms", "after it forms", "all")
Values = Mapping[str, NDArray]  # link -> its values at each position


def _blank(scope: Scope, prompts: int) -> Values:
    made, T = scope.architecture, scope.config.length
    shapes = {
        "variance": (made.layers, prompts, T, made.heads, made.head_dim),
        "neurons": (scope.config.neurons, prompts, T),
        "disparity": (made.layers, prompts, T, 1),
        "keys": (made.layers, prompts, T, made.kv_heads, made.head_dim),
    }
    return {link: np.broadcast_to(np.float32(0), shape) for link, shape in shapes.items()}


@Known.define(blank=_blank, of_edited=True)
def links_under(scope: Scope, run: Unedited, edit: EditWord) -> Values:
    """Each link's values at every position under an edit.

    Returns:
        "variance": head outputs, float[layer, prompt, position, head, dim]. "neurons": the known neurons `largest`, float[neuron,
        prompt, position]. "disparity": the known dim `dim` of the stream after each layer, float[layer, prompt, position, 1].
        "keys": before the rotation, float[layer, prompt, position, key-value head, dim].
    """
    made, sites = scope.get(edit), sinkjax.Site
    found = run.captured(
        sinkjax.Capture(sites.HEAD_OUT, name="variance"),
        sinkjax.Capture(sites.KEY, name="keys"),
        sinkjax.Capture(sites.RESID, dims=(scope.known["dim"],), name="disparity"),
        *(
            sinkjax.Capture(sites.NEURON, layers=(layer,), dims=(number,), name=f"neuron {rank}")
            for rank, (layer, number) in enumerate(scope.known["largest"])
        ),
        edit=made,
    )
    neurons = [found.pop(f"neuron {rank}")[0, :, :, 0] for rank in range(len(scope.known["largest"]))]
    return found | {"neurons": np.stack(neurons)}


@EditWord.define()
def put_link(scope: Scope, link: object, donor: object = F.apart, random: bool = False) -> sinkjax.Edit:
    """Patch a link at the study's token with its values from another run.

    Args:
        scope: A scope with the known `forms`, `largest` and `dim`.
        link: One of `LINKS`.
        donor: `links_under` an edit.
        random: Whether each prompt gets the values of a random other position but the first.
    """
    at, name, values = scope.config.position, scope.get(link), scope.get(donor)[scope.get(link)]
    prompts, T = values.shape[1:3]
    source = scope.random.choice(np.delete(np.arange(1, T), at - 1), prompts) if random else np.full(prompts, at)
    label = f"{name} of positions {', '.join(map(str, source))}" if random else name
    return sinkjax.compose(*_link(scope, name, values[:, np.arange(prompts), source]), label=label)


@EditWord.define()
def put_chain(scope: Scope, link: object, donor: object = F.plain, others: object = F.apart) -> sinkjax.Edit:
    """Patch all links at the study's token: one link from one run, the others from another."""
    chosen = {name: scope.get(donor if name == scope.get(link) else others)[name] for name in LINKS}
    return sinkjax.compose(*(edit for name in LINKS for edit in _link(scope, name, chosen[name][:, :, scope.config.position])))


def _link(scope: Scope, link: str, values: NDArray) -> list[sinkjax.Edit]:
    """Make the edits that set a link's values, [layer or neuron, prompt, ...], at the token."""
    at, forms, L = scope.config.position, scope.known["forms"], scope.architecture.layers
    if link == "variance":
        return [sinkjax.edit("head_out", "set", values, layers=range(forms + 1), queries=at)]
    if link == "neurons":
        places = enumerate(scope.known["largest"])
        return [
            sinkjax.edit("neuron", "set", values[rank][:, None], layers=layer, dims=[number], queries=at)
            for rank, (layer, number) in places
        ]
    if link == "disparity":
        return [sinkjax.edit("resid", "set", values, layers=range(forms, L), dims=[scope.known["dim"]], queries=at)]
    return [sinkjax.edit("key", "set", values, layers=range(min(forms + 1, L - 1), L), keys=at)]


@EditWord.define()
def isolated(scope: Scope, kind: object = "self", window: object = "all") -> sinkjax.Edit:
    """Isolate the token of the study in some layers.

    Args:
        scope: A scope with the known `forms`, and the settings `early` and `seen`.
        kind: "self" (it sees only itself), "one other key" (only `seen`), "even" (all keys get the same weight) or "all but the
            first" (key 0 is hidden from it).
        window: "early" (layers 0 to `early`), "middle" (from there to the one where the activation forms), "until it forms",
            "after it forms" or "all". If it forms by layer `early`, the early layers end before that one.
    """
    at, forms, L = scope.config.position, scope.known["forms"], scope.architecture.layers
    early = min(scope.config.early, max(forms - 1, 0))
    layers = {
        "early": range(early + 1),
        "middle": range(min(early + 1, forms), forms + 1),
        "until it forms": range(forms + 1),
        "after it forms": range(min(forms + 1, L - 1), L),
        "all": range(L),
    }
    keys = {
        "self": range(at),
        "one other key": [key for key in range(at + 1) if key != scope.config.seen],
        "even": range(at + 1),
        "all but the first": [0],
    }
    way = scope.get(kind)
    score = 0.0 if way == "even" else -np.inf
    return sinkjax.edit("logits", "set", score, queries=at, keys=keys[way], layers=layers[scope.get(window)])


@Contrast.define(uncontrolled="the isolated run is the comparison")
def lost(read: Readings, measure: Measure, where: At, whole: At) -> Parts:
    """The part of an isolation's effect on a measure that other conditions remove; the whole is the entire effect.

    Args:
        read: The stores.
        measure: The compared measure.
        where: The conditions that take something out of the isolated run.
        whole: The isolated run.
    """
    isolated, plain = read.edited(measure, whole), read.edited(measure, whole, edited=False)
    span, unit = facts_of(measure)
    label = f"part of the effect of isolation on {read.name(measure, where)} that is lost"
    return Parts(isolated - read.edited(measure, where), None, isolated - plain, span, unit, label, whole_range=ends_of(span))


# Ignition of tokens


@Computation.define(variables=("size", "alignment", "plain_alignment"), prompts=F.prompts)
def ignitions(
    scope: Scope, model: Model, batch: Batch, places: object = F.places, seen: object = F.keys, count: object = F.neurons
) -> xarray.Dataset:
    """Size of a token's activation if it sees only one other key, and its alignment with the gates of super neurons.

    Args:
        scope: The study's scope.
        model: The model.
        batch: The prompts.
        places: Tokens, one at a time.
        seen: The other keys, one at a time; each comes before all tokens.
        count: How many of the largest neurons count, in layers until the one where the first token's activation forms.

    Returns:
        float[prompt, place, seen]: size, the logarithm of the largest |h|; alignment, the mean cosine of the neurons' gate
        vectors with the normed input of their MLPs; plain_alignment, the same without an edit.
    """
    import xarray

    run = Unedited(model, batch, None, scope.config.control_prompts)
    neurons = largest(model, scope.get(count), onset(largest_activation(0)).evaluate(scope, run))
    spots, others = scope.get(places), scope.get(seen)
    found = {name: np.zeros((len(batch.lengths), len(spots), len(others))) for name in ("size", "alignment", "plain_alignment")}
    for column, place in enumerate(spots):
        _, plain = _at(model, batch, sinkjax.compose(), place, neurons)
        for row, other in enumerate(others):
            size, aligned = _at(model, batch, scope.get(see_only(place, other)), place, neurons)
            for name, values in (("size", size), ("alignment", aligned), ("plain_alignment", plain)):
                found[name][:, column, row] = values
    axes = ("prompt", "place", "seen")
    return xarray.Dataset({name: (axes, values) for name, values in found.items()}, {"place": [*spots], "seen": [*others]})


def _at(model: Model, batch: Batch, edit: sinkjax.Edit, place: int, neurons: Sequence[Neuron]) -> tuple[NDArray, NDArray]:
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


def predicted(x: NDArray, y: NDArray) -> NDArray:
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


@Contrast.define(uncontrolled="the mean is the comparison")
def foretold(read: Readings, computation: str, by: str = "alignment") -> Parts:
    """Reduction in squared error, on the other half of the documents, of a line in the alignment compared with the mean.

    Args:
        read: The stores.
        computation: The `ignitions`.
        by: "alignment", in the run with the isolated token, or "plain_alignment", in the unedited run.
    """
    data = read.results[read.store(computation)]
    gain, whole = predicted(data[by].values, data["size"].values).T
    run = "the same run" if by == "alignment" else "the unedited run"
    return Parts(gain, None, whole, None, "squared log", f"squared error that alignment with the gates in {run} takes away")
