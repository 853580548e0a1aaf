"""What the studies of the first token share: which BOS a study uses, runs without and with it, how far position 0 stands out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.analysis.rules import fact
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.errors import SinkjaxError
from sinkjax.studies.figures import POSITIONS, TOKENS

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.checkpoints.tokenizer import Tokenizer

WITHOUT, WITH = "without BOS", "with BOS"
STORES = {WITHOUT: "plain", WITH: "bos"}  # of the two runs
SWEEPS = tuple(STORES.values())
PLAIN = st.Inputs(bos="none")
CHAT = ("<|im_start|>",)  # open a turn of a chat; other tokens separate the documents of a pretraining corpus


def require(bos: str | int, model: Model) -> tuple[int, str]:
    """Id and text of the BOS of a study that needs one: `bos` if that is a token id, else the one that the model's files name.

    Raises:
        SinkjaxError: there is none, or it is not in the vocabulary.
    """
    token, size = _token(bos, model.tokenizer, model.source["name"]), model.config.vocab_size or 0
    if not 0 <= token < size:
        raise SinkjaxError(f"bos is the token id {token}, but the model's vocabulary has {size} tokens")
    return token, model.tokenizer.decode([token]) if model.tokenizer else str(token)


def after_bos(config: st.StudyConfig) -> st.Inputs:
    """The study's passages after its BOS; no weights are read. Raises `Absent` if neither the config nor the files name one."""
    tokenizer = None if isinstance(config.bos, int) else _tokenizer(config.model, config.revision)
    return st.Inputs(bos=_token(config.bos, tokenizer, config.model))


def expect(config: st.StudyConfig, architecture: Any) -> None:
    """Refuse, before any weights are read, a study that cannot do without a BOS where there is none."""
    after_bos(config)


def _token(bos: str | int, tokenizer: Tokenizer | None, model: str) -> int:
    token = bos if isinstance(bos, int) else tokenizer.bos if tokenizer else None
    if token is None:
        raise st.Absent(f"the files of {model} name no BOS token; give a token id as bos")
    return token


@functools.lru_cache(maxsize=1)
def _tokenizer(model: str, revision: str | None) -> Tokenizer | None:
    from sinkjax.checkpoints.load import open_checkpoint

    return open_checkpoint(model, revision).tokenizer


def token(data: xarray.Dataset) -> tuple[int, str]:
    """Id and text of the BOS in a store: of a calculation's own, or the first token of a sweep's prompts."""
    if "bos_text" in data.attrs:
        return int(data.attrs["bos"]), str(data.attrs["bos_text"])
    number, text = data.attrs["study"]["first_tokens"][0]
    return int(number), str(text)


def separates(store: str = STORES[WITH]) -> st.Rule:
    """The BOS of a store stood between documents in pretraining, unless it is a chat's; one that the config names is believed."""

    def test(results: st.Results) -> st.Outcome:
        return fact(isinstance(results.config.bos, int) or token(results[store])[1] not in CHAT)

    return st.Rule("the BOS that the model's files name separated documents in its pretraining and is no chat marker", test)


def meets(run: str) -> st.Rule:
    """The model met such prompts in training: behind a BOS that separated documents; without, if not every block had one."""
    if run == WITH:
        return separates()
    criterion = "no BOS stood in front of every block in the model's training (`bos` is not model)"
    return st.Rule(criterion, lambda results: fact(results.config.bos != "model"))


def about(results: st.Results, store: str = STORES[WITH]) -> tuple[str, ...]:
    """A note on which token the BOS is; none where there is no such store."""
    if store not in results:
        return ()
    (number, text), given = token(results[store]), isinstance(results.config.bos, int)
    note = f"BOS is {text!r} (token {number}), {'as the config says' if given else 'which the files of the model name'}."
    if not given and text in CHAT:
        note += """ It opens a turn of a chat and separated no documents in pretraining, so that claims on BOS do not apply; the
            config can name the token that did."""
    return (note,)


def provenance(results: st.Results) -> Mapping[str, Any]:
    """How a calculation was made, and with which BOS."""
    from sinkjax.studies import folder

    data = results[next(iter(results.stores))]
    number, text = token(data)
    return folder.provenance(data) | {"BOS token": f"{text!r} ({number})"}


def both(sweep: st.Sweep) -> tuple[st.Sweep, st.Sweep]:
    """A sweep on the passages as they are, and the same one after the BOS."""
    return (
        st.repeated(sweep, STORES[WITHOUT], prefix=WITHOUT, inputs=lambda config: PLAIN),
        st.repeated(sweep, STORES[WITH], prefix=WITH, inputs=after_bos),
    )


def runs(results: st.Results) -> dict[str, xarray.Dataset]:
    """The stores of the runs that took place."""
    return {run: results[store] for run, store in STORES.items() if store in results}


def number(
    run: str, name: str, values: Callable[[Any], Any], unit: str = "", signed: bool = False, exact: bool = False
) -> st.Quantity:
    """A number from the store of one run. Estimates name the run; the criteria of rules do not.

    exact: whether it is no mean over prompts. The rest is as for `studies.quantity`.
    """
    found = st.quantity(f"{name} ({run})", lambda results: values(results[STORES[run]]), unit, signed)
    return dataclasses.replace(found, name=name, exact=exact)


def by_layer(eps: float, places: Mapping[str, tuple[int, int | None]], caption: str) -> st.Figure:
    """Heads that sink, in per cent (top), and the largest |h| (bottom) in each layer of both runs.

    places: name in the legend -> (which condition, position); None for the largest value at any position but 0.
    """

    def sinks(data: Any, row: int, key: int | None) -> NDArray:
        if key is None:
            return sink_rates(data, eps, per="layer")[1:, row].max(axis=0)
        return 100 * metrics.sink_rate(data, key, eps, per="layer")[row]

    def largest(data: Any, row: int, position: int | None) -> NDArray:
        found = data["resid_max"].values[row, :, 1:]
        return np.nanmax(found[..., 1:], axis=-1) if position is None else found[..., position]

    def grid(results: st.Results) -> list[list[Any]]:
        def panels(ylabel: str, of: Callable[..., NDArray], **options: Any) -> list[Any]:
            curves = {run: {name: of(data, *at) for name, at in places.items()} for run, data in runs(results).items()}
            return [results.panel(run, ylabel, found, **options) for run, found in curves.items()]

        return [panels("heads that sink on the key (%)", sinks), panels("largest |h| after the layer", largest, log=True)]

    return st.curves("by-layer", "layer (0-based)", grid, caption, SWEEPS, legend_above=True)


def maps(layers: Sequence[int], labels: Sequence[str], last: int = 0, about: str = "") -> Iterator[st.Figure]:
    """Attention maps and largest activations of both runs. last: a position that must be visible. about: how to read the maps."""

    def of_run(name: str, store: str) -> st.Figure:
        figure = st.attention_maps(name, layers, store=store, tokens=max(TOKENS, last + 4), about=about)
        return lambda results: figure(results) if store in results else None

    def titles(results: st.Results) -> dict[str, str]:
        return {title: title for title in (f"{run}: {label}" for run in runs(results) for label in labels)}

    yield of_run("attention-without-bos", "maps")
    yield of_run("attention-with-bos", "maps-bos")
    yield st.activations("largest-activation", titles, SWEEPS, max(POSITIONS, last + 4))


def sink_rates(data: Any, eps: float, per: str = "prompt") -> NDArray:
    """Heads, in per cent, that sink on each key which enough queries see: float[key, condition, prompt(, layer)]."""
    keys = range(data.sizes["key"] - MIN_QUERIES + 1)
    return 100 * np.stack([metrics.sink_rate(data, key, eps, per=per) for key in keys])


def prominence(data: xarray.Dataset, position: NDArray | int, others: NDArray[np.bool_] | None = None) -> NDArray:
    """Largest |h| at a position over that at a typical other one (their median), at each depth: float[condition, prompt, depth].

    The largest of the others would not do: in most prompts some other token has a massive activation too.

    Args:
        data: a store with `resid_max`.
        position: int, or int[condition].
        others: bool[condition or 1, position], the positions compared with; by default all but that one.
    """
    largest = np.asarray(data["resid_max"], np.float64)
    index = np.broadcast_to(np.asarray(position), largest.shape[:1])
    others = np.arange(largest.shape[-1]) != index[:, None] if others is None else others
    typical = np.nanmedian(np.where(others[:, None, None], largest, np.nan), axis=-1)
    return np.take_along_axis(largest, index[:, None, None, None], axis=-1)[..., 0] / typical
