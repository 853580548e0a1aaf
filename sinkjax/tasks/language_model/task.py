"""Language-model tasks: next-token prediction in general and on a text, with measurements on held-out blocks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.analysis import metrics
from sinkjax.config_files import documents
from sinkjax.config_files.checks import refuse
from sinkjax.edits.edit import resolve
from sinkjax.edits.edit_list import read_edits
from sinkjax.edits.term import Edits
from sinkjax.model.config import Config
from sinkjax.model.params import Params
from sinkjax.model.site import Site
from sinkjax.probes.probe import Capture, Probe
from sinkjax.probes.record import Record
from sinkjax.tasks.language_model.config import Pretrain
from sinkjax.tasks.language_model.model import build, init, with_attention
from sinkjax.tasks.language_model.text import Text
from sinkjax.train.step import grouped
from sinkjax.train.task import Task
from sinkjax.transformer.forward import forward, run
from sinkjax.transformer.spec import ForwardSpec

FIRST_KEY = (
    Capture(Site.VALUE, positions=(0,), name="first_value"),
    Capture(Site.WEIGHTS, dims=(0,), name="first_weight"),
    Capture(Site.HEAD_OUT, name="head_output"),
)
TINY = 1e-8  # added to a head's output norm, so that a head that writes nothing has a ratio of 0
MEASURED = 64  # the sink rate's T, as in Gu et al. 2025
EPS = 0.3  # the sink rate's threshold, as in Gu et al. 2025
KEYS = 5  # first positions whose sink rate is logged
BIAS = ("attention_received_bias", "attention_share_bias")
STATISTICS = ("attention_received", "attention_share", *BIAS, "resid_max", "resid_norm")
PROBE = dataclasses.replace(
    Probe.of(*STATISTICS, "value_norm", "resid_kurtosis"), capture=(Capture(Site.RESID, name="resid"), *FIRST_KEY)
)


def first_key_norms(record: Record, params: Params) -> tuple[jax.Array, jax.Array]:
    """Norms of a_i0 v_0 W_O and of a head's whole output in each row i: float32 [prompt, layer, head, row] each.

    Both are taken after W_O, and before a norm or a gate of the head. To multiply a head's queries by a number and to divide its
    values by it changes the weights of unnormalised attention, but no ratio of these norms. record: with `FIRST_KEY`.
    """
    value, weight, output = (record[entry.name].astype(jnp.float32) for entry in FIRST_KEY)
    o = params["layers"]["o"].astype(jnp.float32)  # [layer, head, head_dim, d], without a head axis if heads are summed
    o = o if o.ndim == 4 else o[:, None]
    gram = jnp.einsum("lhid,lhjd->lhij", o, o, precision="highest")
    heads = output.shape[3]
    gram = jnp.broadcast_to(gram, (len(gram), heads, *gram.shape[2:]))
    value = jnp.repeat(value[:, :, 0], heads // value.shape[3], axis=2)  # [prompt, layer, head, head_dim]
    first = _norm(jnp.einsum("plhi,lhij,plhj->plh", value, gram, value, precision="highest"))
    whole = _norm(jnp.einsum("plthi,lhij,plthj->plth", output, gram, output, precision="highest"))
    return jnp.abs(weight[..., 0]) * first[..., None], whole.swapaxes(2, 3)


def _norm(squares: jax.Array) -> jax.Array:
    return jnp.sqrt(jnp.maximum(squares, 0))  # rounding may leave less than 0


def measure(params: Params, tokens: jax.Array, config: Config, precision: str) -> dict[str, jax.Array]:
    """Statistics of the first tokens of each sequence, of values, and of the residual stream after each block:

    value_ratio float32 [layer], the norm of a head's value at position 0 over the mean of the others', mean over prompts and
    key-value heads (the value drain of Guo et al. 2024); spectrum float32 [layer, d], the eigenvalues of the stream's second
    moments over all tokens, ascending; disparity float32 [layer], the mean over prompts of max |h| / mean |h| at position 0 (Li
    et al. 2026); spike float32 [layer], the mean over prompts of max |h| over the median |h| of all positions and dims; kurtosis
    float32 [layer], the mean over prompts and positions of the excess kurtosis of h over its dims; written
    float32 [layer, head], the mean norm of position 0's contribution in later rows over the norm of the head's full output there.
    """
    tokens = tokens[:, : min(MEASURED, tokens.shape[1] - 1)]
    record = forward(params, tokens, config, probe=PROBE, logits=False, precision=precision).record
    h = record["resid"].astype(jnp.float32)  # [prompt, layer, position, d]
    moments = jnp.einsum("plti,pltj->lij", h, h, precision="highest")
    first = jnp.abs(h[:, :, 0])
    sizes = jnp.abs(h).reshape(*h.shape[:2], -1)
    values = record["value_norm"]  # [prompt, layer, kv_head, position]
    from_first, whole = (rows[..., 1:].mean(axis=(0, 3)) for rows in first_key_norms(record, params))
    return {name: record[name] for name in STATISTICS} | {
        "value_ratio": (values[..., 0] / values[..., 1:].mean(axis=-1)).mean(axis=(0, 2)),
        # One layer at a time: LAPACK's batches use the thread pool that all devices of a CPU share, and two of them deadlock.
        "spectrum": jax.lax.map(jnp.linalg.eigvalsh, moments),
        "disparity": (first.max(axis=-1) / first.mean(axis=-1)).mean(axis=0),
        "kurtosis": record["resid_kurtosis"][:, 1:].mean(axis=(0, 2)),
        "spike": (sizes.max(axis=-1) / jnp.median(sizes, axis=-1)).mean(axis=0),
        "written": from_first / (whole + TINY),
    }


def summarise(measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The entries of the log.

    sink, sink_share: Sink_k^0.3 of the first positions, by the weights used and by each row's shares; sink_bias, sink_bias_share:
    the same for the attention that is given to no key. received, share [layer, head]: mean weight on the first key, or its share.
    norm_ratio [depth]: of the first token's norm to the others'. largest [depth]: mean over prompts of the largest |h|.
    effective_rank [layer]: exp of the entropy of the singular values of all residual vectors (tokens x d), their sum being 1 (Roy
    and Vetterli 2007). value_ratio, disparity, spike, kurtosis [layer], written [layer, head]. Others are unchanged.
    """
    record = Record({name: measured[name] for name in STATISTICS}, PROBE.dims())
    rest = {name: value for name, value in measured.items() if name not in (*STATISTICS, "spectrum")}
    keys = range(min(KEYS, measured["attention_received"].shape[-1]))
    bias, bias_share = (measured[name] for name in BIAS)
    return rest | {
        "sink": [float(metrics.sink_rate(record, key, EPS).mean()) for key in keys],
        "sink_share": [float(metrics.sink_rate(record, key, EPS, statistic="attention_share").mean()) for key in keys],
        "sink_bias": float((bias > EPS).mean()),
        "sink_bias_share": float((bias_share > EPS).mean()),
        "received": measured["attention_received"][..., 0].mean(axis=0),
        "share": measured["attention_share"][..., 0].mean(axis=0),
        "received_bias": bias.mean(axis=0),
        "norm_ratio": metrics.norm_ratio(record, 0).mean(axis=0).astype(np.float32),
        "largest": metrics.largest_activation(record).value.mean(axis=0),
        "effective_rank": effective_rank(measured["spectrum"]).astype(np.float32),
    }


def effective_rank(spectrum: np.ndarray) -> np.ndarray:
    """Return exp of the entropy of the singular values, from the eigenvalues of the second moments: [..., d] to [...]."""
    values = np.sqrt(np.maximum(spectrum.astype(np.float64), 0))
    shares = values / values.sum(axis=-1, keepdims=True)
    return np.exp(-np.where(shares > 0, shares * np.log(np.where(shares > 0, shares, 1)), 0).sum(axis=-1))


UNROLLED = 6  # models with at most this many layers are unrolled, which makes a step faster and compilation slower
Batch = Mapping[str, jax.Array]  # see `sinkjax/data/batches.py`


class LanguageTask(Task):
    """See `Task`. Its one variant is the normaliser that the config names.

    config: a training with the fields of an `Architecture`. architecture: the model that is trained.
    """

    @property
    def architecture(self) -> Config:
        raise NotImplementedError

    @property
    def variants(self) -> tuple[str, ...]:
        return (self.config.normaliser,)

    def model(self, variant: str) -> Config:
        return self.architecture

    def init(self, seed: int) -> Params:
        return init(self.architecture, seed, self.config.dtype)

    def loss(
        self, params: Params, batch: Batch, variant: jax.Array, step: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array]:
        nll, mask = self._nll(params, batch, step)
        return (nll * mask).sum() / mask.sum(), jnp.bool_(False)

    def evaluate(self, params: Params, batch: Batch, variant: jax.Array) -> dict[str, jax.Array]:
        """Return the mean loss over held-out targets, in nats, and the values of `measure`."""
        measured = measure(params, batch["tokens"], self.architecture, self.config.precision)
        return {"loss": self.held_out_loss(params, batch)} | measured

    def held_out_loss(self, params: Params, batch: Batch) -> jax.Array:
        """Return the mean over targets in the loss mask, float [], computed in groups of as many rows as in training."""

        def sums(rows: Batch) -> tuple[jax.Array, jax.Array]:
            nll, mask = self._nll(params, rows)
            return (nll * mask).sum(), mask.sum()

        total, count = jax.lax.map(sums, grouped(batch, self.config.micro_batch or self.config.batch))
        return total.sum() / count.sum()

    def summarise(self, measured: Mapping[str, np.ndarray]) -> dict[str, Any]:
        with np.errstate(all="ignore"):  # a run that diverges has non-finite values
            return summarise(measured)

    def _nll(self, params: Params, batch: Batch, step: jax.Array | None = None) -> tuple[jax.Array, jax.Array]:
        """Return -log p of each target in nats, and the loss mask: float32 [B, T] each. step: see `Task.loss`."""
        tokens, config = batch["tokens"], self.architecture
        used = jax.tree.map(lambda leaf: leaf.astype(self.config.compute_dtype or leaf.dtype), params)
        how: dict[str, Any] = {
            "unroll": config.layers <= UNROLLED,
            "precision": self.config.precision,
            "remat": self.config.remat,
            "attention_impl": self.config.attention_impl,
        }
        if self.config.edits and step is not None:
            active = (step >= self.config.from_step) & (step < (np.inf if self.config.until is None else self.config.until))
            edits = tuple(term.where(active) for term in edits_of(self.config, config))
            lengths = jnp.full(len(tokens), tokens.shape[1] - 1, jnp.int32)
            out = run(used, tokens[:, :-1], lengths, edits, spec=ForwardSpec(config=config, probe=Probe(), logits=True, **how))
        else:
            out = forward(used, tokens[:, :-1], config, probe=Probe(), **how)
        assert out.logits is not None
        return cross_entropy(out.logits, tokens[:, 1:]), batch["loss_mask"][:, 1:].astype(jnp.float32)


@dataclass(frozen=True)
class PretrainTask(LanguageTask):
    """Next-token prediction on a text."""

    name: ClassVar[str] = "pretrain"
    on_host: ClassVar[bool] = True
    config: Pretrain

    @property
    def architecture(self) -> Config:
        return model(self.config)

    def open(self, say: Callable[[str], None]) -> Text:
        return Text(self.config, say, {})

    def batch_shapes(self) -> dict[str, jax.ShapeDtypeStruct]:
        shape = (self.config.batch, self.config.context + 1)
        return {"tokens": jax.ShapeDtypeStruct(shape, jnp.int32), "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_)}


def task(config: Pretrain) -> PretrainTask:
    """The task of a config. Errors: the model's."""
    made = model(config)
    return PretrainTask(with_attention(config, made, edits_of(config, made)))


def model(config: Pretrain) -> Config:
    """The architecture that is trained."""
    return build(config, config.model_vocabulary, config.context, config.prefix)


def edits_of(config: Any, model: Config) -> Edits:
    """Return a training's edits for blocks of `config.context` tokens, all applied together, as arrays.

    Errors: the document is not a list of edits; an edit does not fit the model.
    """
    if not config.edits:
        return ()
    listed = documents.parse(config.edits, "edits")
    refuse({*listed} != {"edits"}, f"edits is a document with one list, edits, not one of {', '.join(listed) or 'nothing'}")
    return resolve(read_edits(listed["edits"]), model, [config.context], config.context, config.dtype)


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return -log p of each target in nats. logits: float [..., V], targets: int [...]."""
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - chosen
