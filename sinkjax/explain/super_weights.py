"""Search for super weights, single entries of down projections that a model needs, and check them.

Yu et al. 2024 (arXiv 2411.07191) find an entry by the spikes at the input and at the output of its down projection. A spike is
not proof, so we set each candidate to 0 and compare the effect with entries of nearly the same size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import xarray

from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import Edit, compose
from sinkjax.edits.named import edit_weights
from sinkjax.errors import SinkjaxError
from sinkjax.explain.attribution import is_count
from sinkjax.model.batch import check_batch
from sinkjax.model.site import Site, lacks
from sinkjax.probes.probe import Probe
from sinkjax.probes.statistics import Statistic
from sinkjax.runtime.settings import fixed_settings
from sinkjax.sweeps.run import sweep
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model

# Hub id -> (layer, neuron, dim) of published super weights; Yu et al. write (layer, dim, neuron), as the matrix is stored.
PUBLISHED = {
    "mistralai/Mistral-7B-v0.1": ((1, 7310, 2070),),
    "huggyllama/llama-7b": ((2, 7003, 3968),),
    "meta-llama/Llama-2-7b-hf": ((1, 7890, 2533),),
    "allenai/OLMo-1B-0724-hf": ((1, 1710, 1764), (2, 8041, 1764)),
}


@fixed_settings
def super_weights(
    model: Model, tokens: Any, lengths: Any = None, most: int = 3, controls: int = 20, progress: bool = True
) -> xarray.Dataset:
    """Search for super weights one by one, each with the previous ones set to 0.

    A candidate is the entry from the neuron with the largest activation to the dim with the largest output of a layer's MLP, in
    the layer where this product (activation times entry) is largest. It is a super weight if setting it to 0 raises the mean
    loss by more than setting any of the controls does; the search ends with the first candidate that is not one.

    Args:
        model: The model, of any family whose blocks have a down projection without experts.
        tokens: int [B, T], padded on the right.
        lengths: int [B], by default T for all.
        most: Maximum number of candidates.
        controls: Number of entries of the same matrix to compare with: those closest in absolute size.
        progress: Whether to show progress bars.

    Returns:
        A dataset over `candidate`: layer, row (neuron) and col (dim), `weight`, `product` (the largest activation times entry),
        `effect` [candidate, prompt] and `control` [candidate, control, prompt], changes of the mean loss in nats, and `super`,
        whether the mean effect is larger than every control's. The last candidate may not be a super weight.

    Raises:
        SinkjaxError: There is no down projection, or it belongs to experts; a number is below 1; tokens do not fit.
    """
    check_model(model)
    config = model.config
    if (missing := lacks(config, Site.MLP_OUT)) or config.experts is not None:
        raise SinkjaxError(f"there are no super weights to search: this model has {missing or 'experts'}")
    for name, number in (("most", most), ("controls", controls)):
        refuse(not is_count(number), f"{name} must be an integer of at least 1, not {number!r}")
    tokens, lengths, _ = check_batch(tokens, lengths, config, model.tokenizer)
    candidates: list[dict[str, Any]] = []
    while len(candidates) < most:
        places = [(candidate["layer"], candidate["row"], candidate["col"]) for candidate in candidates]
        removed = [_zero(*place) for place in places]
        candidate = _candidate(model, tokens, lengths, places)
        layer, row, col = (candidate[name] for name in ("layer", "row", "col"))
        others = alike(np.asarray(model.params["layers"]["down"][layer], np.float32), row, col, controls)
        tried = [compose(*removed, _zero(layer, r, c)).named(f"{layer}: {r}, {c}") for r, c in ((row, col), *others)]
        edits = [compose(*removed).named("before"), *tried]
        losses = sweep(model, tokens, edits, probe=Probe(nll=True), lengths=lengths, progress=progress)["nll"].mean("position")
        effects = (losses[1:] - losses[0].values).values
        candidates.append({**candidate, "effect": effects[0], "control": effects[1:]})
        if effects[0].mean() <= effects[1:].mean(axis=1).max():
            break
    stacked = {name: np.stack([candidate[name] for candidate in candidates]) for name in candidates[0]}
    dims = {"effect": ("candidate", "prompt"), "control": ("candidate", "control", "prompt")}
    data = xarray.Dataset({name: (dims.get(name, ("candidate",)), values) for name, values in stacked.items()})
    return data.assign({"super": data["effect"].mean("prompt") > data["control"].mean("prompt").max("control")})


def _zero(layer: int, row: int, col: int) -> Edit:
    return edit_weights("down", "set", 0.0, layers=layer, rows=row, cols=col)


def _candidate(model: Model, tokens: Any, lengths: Any, removed: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """Find the next candidate's layer, row, column, weight and product, in a model without the previous ones."""
    probe = Probe(extra=(_spikes(Site.NEURON), _spikes(Site.MLP_OUT)))
    out = forward(model, tokens, edits=[_zero(*place) for place in removed], probe=probe, lengths=lengths)
    inputs, outputs = (np.asarray(out.record[f"largest_{site}"]).max(axis=0) for site in (Site.NEURON, Site.MLP_OUT))
    rows, cols = inputs.argmax(axis=1), outputs.argmax(axis=1)
    layers = np.arange(len(rows))
    weights = np.asarray(model.params["layers"]["down"][layers, rows, cols], np.float64)
    gone = [(int(layer), int(row), int(col)) in removed for layer, row, col in zip(layers, rows, cols, strict=True)]
    products = np.where(gone, 0.0, np.abs(weights) * inputs[layers, rows])
    layer = int(products.argmax())
    row, col, weight, product = (array[layer].item() for array in (rows, cols, weights, products))
    return {"layer": layer, "row": row, "col": col, "weight": weight, "product": product}


@functools.cache  # one object per site, so that no later pass compiles again
def _spikes(site: Site) -> Statistic:
    """Measure the largest absolute value of each dim over the tokens of a prompt."""

    def largest(x: Any, view: Any) -> Any:
        real = jnp.arange(x.shape[1])[None, :, None] < view.lengths[:, None, None]
        return jnp.where(real, jnp.abs(x), 0.0).max(axis=1)

    return Statistic(f"largest_{site}", site, largest, ("prompt", "layer", "dim_of_" + site))


def alike(matrix: np.ndarray, row: int, col: int, count: int) -> list[tuple[int, int]]:
    """Return the entries of nearly the same absolute size, nearest first."""
    sizes = np.abs(matrix).ravel()
    itself = row * matrix.shape[1] + col
    apart = np.abs(sizes - sizes[itself])
    apart[itself] = np.inf
    return [divmod(int(at), matrix.shape[1]) for at in np.argsort(apart, kind="stable")[:count]]
