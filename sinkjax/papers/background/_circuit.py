"""Path patching at the first token, between the first two blocks and the layer where the activation forms."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

import sinkjax
from sinkjax.analysis import intervals
from sinkjax.errors import SinkjaxError
from sinkjax.report.section import Drawing
from sinkjax.studies.known import Unedited
from sinkjax.studies.scope import Scope
from sinkjax.studies.vocabulary import EditWord, FigureWord, Known, Measure, Readings
from sinkjax.studies.words import as_tuple

EARLY, BOTH, REST = 2, "both blocks", "the rest"  # number of early blocks; the sender that combines them
COMPONENTS = ("attention 0", "MLP 0", "attention 1", "MLP 1", "late attention", "late MLP")  # in the order of the forward
RECEIVERS = (*COMPONENTS[1:], REST)
SENDERS = (*COMPONENTS, BOTH)
LATE = ("late attention", "late MLP", REST)
PATHS = (
    *(f"{one} to {other}" for number, one in enumerate(COMPONENTS) for other in RECEIVERS[number:]),
    *(f"{BOTH} to {other}" for other in LATE),
)
DONORS = ("mean", "other")
Written = Mapping[str, NDArray]


def _sites(scope: Scope, name: str) -> tuple[str, int]:
    """Return the site ("attn" or "mlp") and the layer of a component.

    Raises:
        SinkjaxError: The model has fewer than three layers, so no late component follows the first two blocks.
    """
    if scope.architecture.layers <= EARLY:
        raise SinkjaxError(f"the circuit needs a layer after the first two, and this model has {scope.architecture.layers}")
    kind, _, layer = name.partition(" ")
    if kind == "late":
        return "attn" if layer == "attention" else "mlp", max(scope.known["forms"], EARLY)
    return "attn" if kind == "attention" else "mlp", int(layer)


def _members(sender: str) -> tuple[str, ...]:
    return COMPONENTS[: 2 * EARLY] if sender == BOTH else (sender,)


def _blank(scope: Scope, prompts: int) -> Written:
    shape = (scope.architecture.layers, prompts, scope.config.length, scope.architecture.width)
    return {"attn": np.broadcast_to(np.float32(0), shape), "mlp": np.broadcast_to(np.float32(0), shape)}


@Known.define(blank=_blank, of_edited=True)
def written(scope: Scope, run: Unedited) -> Written:
    """Return the unedited outputs of attention ("attn") and MLP ("mlp"), float[layer, prompt, position, dim] each."""
    return run.captured(sinkjax.Capture(sinkjax.Site.ATTN_OUT, name="attn"), sinkjax.Capture(sinkjax.Site.MLP_OUT, name="mlp"))


def _donor(scope: Scope, kind: str, layer: int, donor: str) -> NDArray:
    """Return a component's mean output over the positions after the first, or its output at one of them: float[prompt, dim]."""
    values: NDArray = scope.known["written"][kind][layer][:, 1:]
    if donor == "mean":
        return np.asarray(np.nanmean(values, axis=1))
    rng = intervals.generator(scope.config.seed, "background/circuit other positions")
    prompts, T, _ = values.shape
    return values[np.arange(prompts), rng.integers(0, T, prompts)]


@EditWord.define()
def replace_output(scope: Scope, sender: object, donor: object = "mean", random: bool = False) -> sinkjax.Edit:
    """Replace a component's output at the first token, for all its readers.

    Args:
        scope: A scope with the known `written` and `forms`.
        sender: One of `SENDERS`.
        donor: "mean" over the other positions, or "other", a random other position of each prompt.
        random: Whether to replace the same components in random layers instead. The first two layers and, if others are left, the
            late one are excluded.
    """
    places, label = [_sites(scope, name) for name in _members(scope.get(sender))], str(scope.get(sender))
    if random:
        late = _sites(scope, "late MLP")[1]
        others = [layer for layer in range(EARLY, scope.architecture.layers) if layer != late] or [late]
        ranks = sorted(scope.random.choice(len(others), EARLY, replace=len(others) < EARLY).tolist())
        drawn = dict(zip(range(EARLY), (others[rank] for rank in ranks), strict=True))
        places = list(dict.fromkeys((kind, drawn.get(layer, drawn[0])) for kind, layer in places))
        # ranks, because a plan does not know the late layer
        label = f"{label} of other layers, numbers {', '.join(map(str, ranks))}"
    outputs = {place: _donor(scope, *place, scope.get(donor)) for place in places}
    edits = (sinkjax.edit(f"{kind}_out", "set", out, layers=layer, queries=0) for (kind, layer), out in outputs.items())
    return sinkjax.compose(*edits, label=label)


@EditWord.define()
def patch_path(scope: Scope, path: object, donor: object = "mean", random: bool = False) -> sinkjax.Edit:
    """Replace a component's output at the first token for only one of its readers.

    Args:
        scope: A scope with the known `written` and `forms`.
        path: One of `PATHS`, from a sender to a receiver. "the rest" means everything that reads the stream after the late block.
        donor: See `replace_output`.
        random: Whether to change the reader's input in a random direction instead, drawn for each prompt.
    """
    name, way = scope.get(path), scope.get(donor)
    sender, _, receiver = name.partition(" to ")
    places = [_sites(scope, member) for member in _members(sender)]
    own = scope.known["written"]
    change = np.sum([_donor(scope, *at, way) - own[at[0]][at[1]][:, 0] for at in places], axis=0)
    if random:
        turned = scope.random.standard_normal(change.shape)
        change = turned * np.linalg.norm(change, axis=-1, keepdims=True) / np.linalg.norm(turned, axis=-1, keepdims=True)
        name = f"random direction {scope.random.integers(10**6)}"
    if receiver == REST:
        return sinkjax.edit("resid", "add", change, layers=_sites(scope, "late MLP")[1], queries=0, label=name)
    kind, layer = _sites(scope, receiver)
    return sinkjax.edit(f"{kind}_in", "inject", change, layers=layer, queries=0, label=name)


@FigureWord.define()
def circuit(read: Readings, measures: Measure, over: str) -> Drawing:
    """Heat maps of the effects of paths on measures, with one column of maps per donor.

    Args:
        read: The stores.
        measures: The measures; each has a row of maps.
        over: The grid of paths.
    """
    from sinkjax.report.figures import grid as picture

    points, several = read.points(over), as_tuple(measures)
    bounds = {(dict(point.bound)["path"], dict(point.bound)["donor"]): row for row, point in enumerate(points) if point.bound}
    rows = []
    for measure in several:
        log = measure.meaning.facts.get("log")
        maps = []
        for donor in DONORS:
            found = np.full((len(RECEIVERS), len(SENDERS)), np.nan)
            for (x, receiver), (y, sender) in itertools.product(enumerate(RECEIVERS), enumerate(SENDERS)):
                if (row := bounds.get((f"{sender} to {receiver}", donor))) is not None:
                    edited, plain = (read.value(measure, over, row, edited) for edited in (True, False))
                    found[x, y] = np.mean(np.log(edited) - np.log(plain) if log else edited - plain)
            maps.append(found)
        most = max(float(np.nanmax(np.abs(found))) for found in maps) or 1.0
        name = f"effect on {'log of ' if log else ''}{read.name(measure)}"
        rows.append(picture.Row(maps, name, (-most, most), signed=True))
    columns = [picture.Column(f"donor: {donor}", list(RECEIVERS), "reads") for donor in DONORS]
    figure = picture.grids(columns, rows, list(SENDERS), "writes")
    what = " and ".join(read.name(measure) for measure in several)
    caption = f"""Change of {what} when one component's output at the first token (vertical axis) is replaced for only one
        reader (horizontal axis), by its mean over the other positions or by its output at another position. Means over prompts.
        Grey cells are not paths."""
    return read.drawing("circuit", figure, caption, over, bands=False)
