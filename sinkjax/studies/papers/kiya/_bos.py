"""What the studies of the first token share: which BOS a study means, runs without and with one, how position 0 stands out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sinkjax.studies as st
from sinkjax.analysis import metrics
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.errors import SinkjaxError
from sinkjax.studies.figures import POSITIONS, TOKENS

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model
    from sinkjax.checkpoints.tokenizer import Tokenizer

WITHOUT, WITH = "without BOS", "with BOS"
STORES = {WITHOUT: "plain", WITH: "bos"}  # of the two runs
SWEEPS, MAPS = tuple(STORES.values()), {WITHOUT: "maps", WITH: "maps-bos"}
PLAIN = st.Inputs(bos="none")


@dataclass(frozen=True)
class Bos:
    """A study's BOS: its token id and its text."""

    id: int
    text: str


def require(bos: str | int, model: Model) -> Bos:
    """The BOS of a study that cannot do without one: the token id given as `bos`, else the one that the model's files name.

    Raises:
        SinkjaxError: there is none, or it is not in the vocabulary.
    """
    tokenizer, size = model.tokenizer, model.config.vocab_size or 0
    token = bos if isinstance(bos, int) else tokenizer.bos if tokenizer else None
    if token is None:
        raise SinkjaxError(nameless(model.source["name"]))
    if not 0 <= token < size:
        raise SinkjaxError(f"bos is the token id {token}, but the model's vocabulary has {size} tokens")
    return Bos(token, tokenizer.decode([token]) if tokenizer else str(token))


def expect(config: st.StudyConfig) -> None:
    """Raise if the files of a study's model are here and name no BOS, and the study gives none; no weights are read."""
    if not isinstance(config.bos, int):
        tokenizer = tokenizer_of(config.model, config.revision)
        if tokenizer is not None and tokenizer.bos is None:
            raise SinkjaxError(nameless(config.model))


def nameless(model: str) -> str:
    """Why a study that needs a BOS cannot run."""
    return f"the files of {model} name no BOS token; give a token id as bos"


@functools.lru_cache(maxsize=1)
def tokenizer_of(model: str, revision: str | None) -> Tokenizer | None:
    """The tokenizer of a model whose weights are not read."""
    from sinkjax.checkpoints.load import open_checkpoint

    return open_checkpoint(model, revision).tokenizer


def provenance(results: st.Results) -> Mapping[str, Any]:
    """The usual facts of a calculation that has a BOS, and which it is."""
    from sinkjax.studies import folder

    data = results[next(iter(results.stores))]
    return folder.provenance(data) | {"BOS token": f"{data.attrs['bos_text']!r} ({data.attrs['bos']})"}


def after_bos(config: st.StudyConfig) -> st.Inputs:
    """The study's passages after its BOS. Raises `Absent` where neither the config nor the model's files name one."""
    token: Any = config.bos
    if not isinstance(token, int):
        tokenizer = tokenizer_of(config.model, config.revision)
        token = tokenizer.bos if tokenizer else None
    if token is None:
        raise st.Absent(nameless(config.model))
    return st.Inputs(bos=token)


def both(sweep: st.Sweep) -> tuple[st.Sweep, st.Sweep]:
    """A sweep on the passages as they are, and the same one after the BOS; labels of rows say which."""
    return (
        st.repeated(sweep, STORES[WITHOUT], prefix=WITHOUT, inputs=lambda config: PLAIN),
        st.repeated(sweep, STORES[WITH], prefix=WITH, inputs=after_bos),
    )


def runs(results: st.Results) -> dict[str, xarray.Dataset]:
    """The stores of the runs that took place."""
    return {run: results[store] for run, store in STORES.items() if store in results}


def number(
    run: str, name: str, values: Callable[[Any], Any], unit: str = "", signed: bool = False, exact: bool = False, detail: str = ""
) -> st.Quantity:
    """A number of one run, from its store. An estimate says of which run, and what `detail` adds; the words of rules do not.

    exact: whether it is no mean over prompts. The rest is as for `studies.quantity`.
    """
    found = st.quantity(f"{name} ({run}{detail})", lambda results: values(results[STORES[run]]), unit, signed)
    return dataclasses.replace(found, name=name, exact=exact)


def in_every_run(rule: Callable[[Callable[..., st.Quantity]], st.Rule]) -> st.Rule:
    """A rule, made from a run's `number`, holds in every run that took place."""
    return st.all_present([rule(functools.partial(number, run)) for run in STORES], "in every run")


def figures(layers: Sequence[int], labels: Sequence[str], last: int = 0, about: str = "") -> Iterator[st.Figure]:
    """Attention maps and largest activations of both runs. last: a position that must be visible. about: how to read the maps."""
    for run, store in MAPS.items():
        name = f"attention-{run.replace(' ', '-').lower()}"
        yield st.attention_maps(name, layers, store=store, tokens=max(TOKENS, last + 4), about=about)

    def panels(results: st.Results) -> dict[str, str]:
        found = [f"{run}: {label}" for run in runs(results) for label in labels]
        return {label: label for label in found} if len(labels) > 1 else dict(zip(found, runs(results), strict=True))

    yield st.activations("largest-activation", panels, SWEEPS, max(POSITIONS, last + 4))


def searched(data: Any) -> NDArray:
    """The keys that may be called a sink: those that enough queries of a whole prompt see."""
    return np.arange(data.sizes["key"] - MIN_QUERIES + 1)


def sink_rates(data: Any, eps: float, per: str = "prompt") -> NDArray:
    """Share of heads, in per cent, that sink on each searched key: float[key, condition, prompt(, layer)]."""
    return 100 * np.stack([metrics.sink_rate(data, int(key), eps, per=per) for key in searched(data)])


def prominence(data: xarray.Dataset, position: NDArray | int, others: NDArray[np.bool_] | None = None) -> NDArray:
    """Largest |h| at a position over that at a typical other one (their median), at each depth: float[condition, prompt, depth].

    A maximum over the others would not do: in most prompts some other token has a massive activation too.

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
