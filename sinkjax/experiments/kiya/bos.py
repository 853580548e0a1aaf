"""What the recipes on the first token share: which BOS a study means, runs with and without one, and what a key receives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis import metrics
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import MIN_QUERIES
from sinkjax.errors import SinkjaxError
from sinkjax.experiments.base import Batch, Calculation, Inputs, Job
from sinkjax.studies.config import Study

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.tokenizer import Tokenizer

WITHOUT, WITH = "without BOS", "with BOS"
ABSENT = "absent"  # attribute of the store of a run that did not take place


@dataclass(frozen=True)
class Bos:
    """A study's BOS: its token id and its text."""

    id: int
    text: str


def find(bos: str | int, tokenizer: Tokenizer | None) -> Bos | None:
    """The BOS that a study means: the token id given as `bos`, else the one that the model's files name, else None."""
    token = bos if isinstance(bos, int) else tokenizer.bos if tokenizer else None
    return None if token is None else Bos(token, tokenizer.decode([token]) if tokenizer else str(token))


def require(bos: str | int, model: Model) -> Bos:
    """The BOS of a study that cannot do without one. Errors: none there, or not in the vocabulary."""
    found, size = find(bos, model.tokenizer), model.config.vocab_size or 0
    if found is None:
        raise SinkjaxError(f"the files of {model.source['name']} name no BOS token; give a token id as bos")
    if not 0 <= found.id < size:
        raise SinkjaxError(f"bos is the token id {found.id}, but the model's vocabulary has {size} tokens")
    return found


def of_study(config: Study) -> Bos | None:
    """The BOS of a study whose model is not loaded; its tokenizer is read, its weights are not."""
    if isinstance(config.bos, int):
        return Bos(config.bos, str(config.bos))
    return find(config.bos, open_checkpoint(config.model, config.revision).tokenizer)


def expect(config: Study) -> None:
    """Raise if the files of a study's model are here and name no BOS, and the study gives none."""
    tokenizer = None if isinstance(config.bos, int) else open_checkpoint(config.model, config.revision).tokenizer
    if tokenizer is not None and tokenizer.bos is None:
        raise SinkjaxError(f"the files of {config.model} name no BOS token; give a token id as bos")


def with_bos(job: Job, name: str, bos: Bos | None) -> Job | Calculation:
    """The job again under another name, with a BOS before each prompt; for a model without one, a store that says so."""
    if bos is None:
        return Calculation(name, _absent, 1, Inputs(bos="none"))
    return dataclasses.replace(job, name=name, inputs=Inputs(bos=bos.id))


def _absent(model: Model, batch: Batch) -> xarray.Dataset:
    """Nothing, for the model's files name no BOS."""
    import xarray

    return xarray.Dataset(attrs={ABSENT: f"the files of {model.source['name']} name no BOS token"})


def present(stores: Mapping[str, xarray.Dataset]) -> dict[str, xarray.Dataset]:
    """The stores of the runs that took place."""
    return {name: store for name, store in stores.items() if ABSENT not in store.attrs}


def searched(data: Any) -> NDArray:
    """The keys that may be called a sink: those that enough queries of a whole prompt see."""
    return np.arange(data.sizes["key"] - MIN_QUERIES + 1)


def sink_rates(data: Any, eps: float, per: str = "prompt") -> NDArray:
    """Share of heads, in per cent, that sink on each searched key: float[key, edit, prompt(, layer)]."""
    return 100 * np.stack([metrics.sink_rate(data, int(key), eps, per=per) for key in searched(data)])


def prominence(data: Any, position: NDArray | int, others: NDArray[np.bool_] | None = None) -> NDArray:
    """Largest |h| at a position over that at a typical other one (their median), at each depth: float[edit, prompt, depth].

    position: int, or int[edit]. others: bool[edit or 1, position], the positions compared with; by default all but that one. The
    largest of them would not do: in most prompts some other token has a massive activation too.
    """
    largest = np.asarray(data["resid_max"], np.float64)
    index = np.broadcast_to(np.asarray(position), largest.shape[:1])
    others = np.arange(largest.shape[-1]) != index[:, None] if others is None else others
    typical = np.nanmedian(np.where(others[:, None, None], largest, np.nan), axis=-1)
    return np.take_along_axis(largest, index[:, None, None, None], axis=-1)[..., 0] / typical
