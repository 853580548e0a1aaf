"""`evaluate`: the loss of a model under quantisation or cache eviction, with or without edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.finite import refuse_infinite
from sinkjax.analysis.kinds import sink_positions
from sinkjax.checkpoints.model import check_model
from sinkjax.config_files.checks import refuse
from sinkjax.data.prompts import PAD, ids_behind, is_integer
from sinkjax.edits.edit import Edit, resolve
from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError, short
from sinkjax.model.batch import as_indices, as_tokens, refuse_outside
from sinkjax.model.config import Config
from sinkjax.model.params import check, dtype_of
from sinkjax.model.quantisation import Quantisation
from sinkjax.model.site import Site
from sinkjax.probes.probe import Probe
from sinkjax.runtime import display
from sinkjax.runtime.hardware import Hardware
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.cached import refuse_policy, stream
from sinkjax.transformer.eviction import CachePolicy, ScoredCache
from sinkjax.transformer.forward import run
from sinkjax.transformer.implementations import AUTO, chosen
from sinkjax.transformer.output import scored
from sinkjax.transformer.past import Past, put_in_front
from sinkjax.transformer.scoring import last_scores
from sinkjax.transformer.spec import ForwardSpec

if TYPE_CHECKING:
    import xarray

    from sinkjax.checkpoints.model import Model

TOKENS = 4096  # tokens per call without a cache policy, unless a single piece has more
CHUNK = 128  # tokens per call with one
SINKS = "sinks"  # in place of positions that are not rounded


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The loss of texts.

    Attributes:
        nll: -log p of the next token in nats, float [pieces, positions]; NaN where there is none.
        text: Index of the text that each piece belongs to, int [pieces].
    """

    nll: NDArray[np.floating[Any]]
    text: NDArray[np.int_]

    def __post_init__(self) -> None:
        refuse_infinite(self.nll)

    @property
    def tokens(self) -> int:
        """Number of predicted tokens."""
        return int((~np.isnan(self.nll)).sum())

    @property
    def loss(self) -> float:
        """Mean over all predicted tokens, in nats."""
        return float(np.nanmean(self.nll, dtype=float))

    @property
    def perplexity(self) -> float:
        """Exponential of the loss."""
        return float(np.exp(self.loss))

    def by_text(self) -> NDArray[np.float64]:
        """Return the mean loss of each text's tokens in nats, float [texts]; NaN for a text of one token."""
        counts = np.bincount(self.text, (~np.isnan(self.nll)).sum(axis=1))
        sums = np.bincount(self.text, np.nansum(self.nll, axis=1, dtype=float))
        with np.errstate(invalid="ignore"):
            return np.asarray(sums / counts, np.float64)

    def to_dataset(self) -> xarray.Dataset:
        """Return each text's mean loss in nats and number of predicted tokens, as `loss` and `tokens` along `text`."""
        import xarray

        tokens = np.bincount(self.text, (~np.isnan(self.nll)).sum(axis=1)).astype(int)
        return xarray.Dataset({"loss": ("text", self.by_text()), "tokens": ("text", tokens)})

    def __repr__(self) -> str:
        return f"Evaluation(loss={self.loss:.4f}, perplexity={self.perplexity:.4g}, tokens={self.tokens})"

    def _repr_html_(self) -> str:
        rows = [(f"{self.loss:.4f}", f"{self.perplexity:.4g}", f"{self.tokens:,}")]
        return display.table("evaluation", ("loss (nats)", "perplexity", "tokens"), rows)


@fixed_settings
def evaluate(
    model: Model,
    text: str | Sequence[str] | Any,
    weights: int | str | None = None,
    activations: int | str | None = None,
    kv: int | str | None = None,
    scale: str = "tensor",
    rotate: bool = False,
    keep: Sequence[int] | str = (),
    cache: CachePolicy | None = None,
    edits: Edit | Sequence[Edit] = (),
    bos: str | int = "auto",
    length: int | None = None,
    attention_impl: str = AUTO,
    past: Past | None = None,
) -> Evaluation:
    """Return the loss of a model on texts, optionally quantised, with a cache policy, or edited.

    With a cache policy, a text of any length is read from its first to its last token in constant memory. Without one, a text
    longer than `length` is cut into pieces, each with its own BOS and its own forward pass.

    Args:
        model: The model.
        text: A text, several texts, or token ids int [B, T], which are used unchanged.
        weights: Bits of the matrices of attention and the MLP, 2 to 16; "nvfp4" (blocks of 16 with E4M3 scales) or "mxfp4"
            (blocks of 32 with E8M0 scales) for 4-bit floats; None for no rounding. Norms, biases, gates, the embedding and the
            unembedding are never rounded.
        activations: Bits of the inputs that these matrices multiply, including those of every expert; a router's input is not
            rounded.
        kv: Bits of keys and values.
        scale: The unit that shares a scale, except in a block format (its largest absolute value is the last step). For
            activations, keys and values: "tensor" is a piece (of all experts), or with a cache policy the tokens computed
            together; "channel" is each of its dims; "token" is each token, and each head of keys and values. For weights:
            "tensor" is a matrix; the others are each of its outputs.
        rotate: Whether to apply a randomised Hadamard rotation before rounding and its inverse afterwards (QuaRot).
        keep: Positions whose activations, keys and values are not rounded and do not affect the scale; or "sinks" for each
            piece's sinks in an unrounded run (`sinkjax.metrics.sink_positions`).
        cache: None, `sinkjax.Streaming`, `sinkjax.H2O`, `sinkjax.KeyNorm` or `sinkjax.SnapKV`: the keys to keep, with positions
            counted inside the cache.
        edits: Edits that apply to every piece; positions count from the start of the piece.
        bos: Token before each text or piece, as in `sinkjax.encode`; not added to token ids. "auto" adds none if `past` has it.
        length: Positions per piece, including the BOS; None for the model's context. Not used with a cache policy.
        attention_impl: The option of `sinkjax.forward`; a cache policy has its own attention.
        past: Keys and values in front of each piece, as for `sinkjax.forward`. They are not rounded, and a cache policy keeps
            them in addition to its own keys.

    Returns:
        The loss: `.loss` and `.perplexity` overall, `.by_text()` for each text, and `.nll` for each token.

    Raises:
        SinkjaxError: There is no tokenizer for a text, or no token to predict; a loss is not finite; an argument is unknown or
            out of range; edits do not fit; a cache policy is combined with edits of scores or positions, with `keep="sinks"`, or
            with a model whose rows need all keys; the past does not fit.
    """
    how = Quantisation(weights=weights, activations=activations, kv=kv, scale=scale, rotate=rotate)
    used = InUse(model, how, keep, cache, edits, attention_impl, past)
    pieces, of_text = pieces_of(model, text, bos, length, past, whole=cache is not None)
    if max(map(len, pieces)) < 2:
        raise SinkjaxError("no text has a second token, so there is nothing to predict")
    return Evaluation(used.losses(pieces), of_text)


@dataclass(frozen=True, eq=False)
class InUse:
    """A model as it runs in use. Fields are the arguments of `evaluate`, whose errors it raises; how: its bits."""

    model: Model
    how: Quantisation
    keep: Sequence[int] | str = ()
    cache: CachePolicy | None = None
    edits: Edit | Sequence[Edit] = ()
    attention_impl: str = AUTO
    past: Past | None = None

    def __post_init__(self) -> None:
        check_model(self.model)
        if isinstance(self.keep, str):
            refuse(self.keep != SINKS, f'keep must be positions or "{SINKS}", not {short(self.keep)}')
            refuse(self.cache is not None, f'keep="{SINKS}" needs the attention to all keys, but a cache policy keeps a few')
        else:
            object.__setattr__(self, "keep", as_indices("position", self.keep) if np.size(self.keep) else ())
        refuse(self.model.config.vocab_size is None, "this model has no vocabulary, so it has no token loss")
        check(self.model.params, self.model.config)

    def losses(self, pieces: Sequence[Sequence[int]]) -> NDArray[np.floating[Any]]:
        """Return -log p of the next token at each position of each piece, float [pieces, positions]; NaN where there is none."""
        lengths = np.array([len(piece) for piece in pieces])
        tokens, T = self._padded(pieces, int(lengths.max()))
        params, kept, edits, spec = self._ready(tokens, lengths, T, Probe(nll=True))
        if self.cache is None:
            nll = _forwards(params, tokens[:, :-1], lengths, edits, spec, kept)["nll"]
        else:
            nll = _streamed(_with_kept(params, kept, spec), tokens, lengths, edits, spec)[..., 0]
            nll = np.asarray(scored(jnp.asarray(nll), np.arange(T) < lengths[:, None] - 1))
        return nll[:, : int(lengths.max())]

    def scores(self, rows: Sequence[Sequence[int]], counts: Sequence[int], most: int | None = None) -> list[tuple[float, bool]]:
        """Score the last tokens of rows, each given all before it; few lengths are compiled, as rows are padded to the next one.

        Args:
            rows: Token ids; the last one of each is only predicted, so a row may have one more than the context.
            counts: How many tokens of each row are scored, at least 1 and fewer than it has.
            most: Rows per call; None for as many as `TOKENS` allows.

        Returns:
            For each row the sum of log p of these tokens, in nats, and whether greedy decoding would choose each of them.
        """
        lengths, number = np.array([len(row) - 1 for row in rows]), np.array(counts)
        context = self.model.config.context - (0 if self.past is None else self.past.positions)
        padded = np.array([_next_size(length) if self.cache else min(_next_size(length), context) for length in lengths.tolist()])
        found = np.empty((len(rows), 2))
        for T in np.unique(padded):
            here = np.flatnonzero(padded == T)
            tokens, whole = self._padded([rows[row] for row in here.tolist()], int(T))
            params, kept, edits, spec = self._ready(tokens, lengths[here], whole, Probe())
            last = min(_next_size(int(number[here].max()), 1), int(T))
            if self.cache is None:
                score = partial(last_scores, last=last)
                values = _forwards(params, tokens, lengths[here], edits, spec, kept, score, most)["scores"]
            else:
                values = _streamed(_with_kept(params, kept, spec), tokens, lengths[here], edits, spec)
                values = np.take_along_axis(values, (lengths[here, None] - last + np.arange(last)).clip(0)[..., None], axis=1)
            scored_here = (np.arange(last) >= last - number[here, None])[..., None]
            refuse_infinite(np.where(scored_here, values, np.nan)[..., 0])
            found[here, 0] = -np.where(scored_here, values, 0)[..., 0].sum(axis=1, dtype=float)
            found[here, 1] = np.where(scored_here, values, 1)[..., 1].all(axis=1)
        return [(float(total), bool(greedy)) for total, greedy in found]

    @cached_property
    def _rounded(self) -> Any:
        """The model's parameters with rounded matrices."""
        return self.how.params(self.model.params)

    def _padded(self, pieces: Sequence[Sequence[int]], T: int) -> tuple[NDArray[np.int32], int]:
        """Return pieces as rows of T + 1 tokens, and T, which a cache policy rounds up."""
        T = T if self.cache is None else -(-T // CHUNK) * CHUNK
        tokens = np.full((len(pieces), T + 1), PAD, np.int32)
        for row, piece in zip(tokens, pieces, strict=True):
            row[: len(piece)] = piece
        return tokens, T

    def _ready(
        self, tokens: NDArray[np.int32], lengths: NDArray[np.int_], T: int, probe: Probe
    ) -> tuple[Any, NDArray[np.bool_] | None, Edits, ForwardSpec]:
        """Return parameters, the positions that are not rounded, resolved edits and the static part of passes over T tokens."""
        model, config, keep = self.model, self.model.config, self.keep
        if beyond := [position for position in keep if keep != SINKS and position >= lengths.max()]:
            raise SinkjaxError(f"keep has position {beyond[0]}, but the longest piece of the text has {lengths.max()} tokens")
        counted = T if self.cache is None else 1  # a policy counts inside the cache
        whole, P = put_in_front(model.params, self.past, config, counted, model.source)
        spec = plain = ForwardSpec(config=config, probe=probe, logits=False, cache_policy=self.cache, past=P)
        edits = resolve(self.edits, config, lengths, T, model.source.get("dtype"))
        _check_quantised(self.how, edits)
        if self.cache is None:
            dtype, hardware = str(dtype_of(model.params)), Hardware.holding(model.params)
            named = chosen(self.attention_impl, config, [edits], probe, T, dtype, hardware, past=P)
            spec = replace(spec, attention_impl=named)
        else:
            other = self.attention_impl not in (AUTO, spec.attention_impl)
            refuse(other, f'attention_impl "{self.attention_impl}" does not support a cache policy; choose "{AUTO}"')
            _check_cached(self.cache, self.how, config, edits, T, P)
        if self.how.off:
            return whole, None, edits, spec
        if keep == SINKS:
            kept = _sinks(whole, tokens[:, :-1], lengths, edits, plain)
        else:
            kept = np.broadcast_to(np.isin(np.arange(T), keep), (len(tokens), T))
        params = self._rounded | {"layers": whole["layers"] | self._rounded["layers"]}
        return params, kept, edits, replace(spec, quantisation=self.how)


def _next_size(length: int, least: int = 16) -> int:
    """Round a length up to one of at most four sizes per doubling."""
    step = max(least, 1 << max(0, length.bit_length() - 3))
    return -(-length // step) * step


def pieces_of(
    model: Model, text: Any, bos: str | int, length: int | None, past: Past | None, whole: bool
) -> tuple[list[list[int]], NDArray[np.int_]]:
    """Return the token ids of all pieces, and each piece's text index. whole: whether a cache policy reads texts uncut."""
    context = model.config.context - (past.positions if isinstance(past, Past) else 0)
    if length is not None and (not is_integer(length) or not 2 <= length <= context):
        raise SinkjaxError(f"length {length!r} must be None or an integer from 2 to {context}, the model's context")
    texts = [text] if isinstance(text, str) else text
    if isinstance(texts, Sequence) and all(isinstance(each, str) for each in texts):
        ids, before = ids_behind(model, texts, bos, past)
    else:
        given = np.asarray(as_tokens("text", texts))
        if given.ndim != 2 or given.dtype.kind not in "iu" or given.size == 0:
            raise SinkjaxError(f"text must be one or several strings, or token ids int [B, T], not {given.dtype} {given.shape}")
        assert model.config.vocab_size is not None
        refuse_outside(given, model.config.vocab_size)
        ids, before = given.tolist(), []
    if whole:
        return ids, np.arange(len(ids))
    new = (length or context) - len(before)
    if new < 1:
        raise SinkjaxError(f"a piece of {length or context} tokens is too short for the {len(before)} before each text")
    pieces, of_text = [], []
    for number, each in enumerate(ids):
        rest = each[len(before) :]
        for begin in range(0, len(rest), new):
            pieces.append([*before, *rest[begin : begin + new]])
            of_text.append(number)
    return pieces, np.array(of_text)


def _sinks(
    params: Any, tokens: NDArray[np.int32], lengths: NDArray[np.int_], edits: Edits, spec: ForwardSpec
) -> NDArray[np.bool_]:
    """Find the sinks of each piece."""
    name = "attention_received" if spec.config.normaliser.rows_sum_to_1 else "attention_share"
    record = _forwards(params, tokens, lengths, edits, replace(spec, probe=Probe.of(name)))
    return sink_positions(record, statistic=name)


def _with_kept(params: Any, kept: NDArray[np.bool_] | None, spec: ForwardSpec) -> Any:
    """Add the positions that are not rounded, bool [B, T], to each layer of the parameters; an array, so that one program serves
    all choices."""
    if kept is None:
        return params
    return params | {"layers": params["layers"] | {"kept": np.broadcast_to(kept, (spec.config.layers, *kept.shape))}}


def _record(*arrays: Any, spec: ForwardSpec) -> dict[str, jax.Array]:
    """Return the statistics of a forward pass."""
    record = run(*arrays, spec=spec).record
    return {name: record[name] for name in spec.probe.dims()}


def _forwards(
    params: Any,
    tokens: NDArray[np.int32],
    lengths: NDArray[np.int_],
    edits: Edits,
    spec: ForwardSpec,
    kept: NDArray[np.bool_] | None = None,
    measure: Callable[..., Mapping[str, jax.Array]] = _record,
    most: int | None = None,
) -> dict[str, NDArray[np.floating[Any]]]:
    """Measure each piece, in forward passes of up to `TOKENS` tokens, or of `most` pieces."""
    count = len(tokens)
    size = -(-count // -(-count // max(1, most or TOKENS // tokens.shape[1])))
    measured = []
    for begin in range(0, count, size):
        rows = np.minimum(np.arange(begin, begin + size), count - 1)  # pad to a single shape, so that only one program compiles
        of_rows = tuple(term.for_prompts(rows) for term in edits)
        used = _with_kept(params, None if kept is None else kept[rows], spec)
        found = measure(used, tokens[rows], lengths[rows].astype(np.int32), of_rows, spec=spec)
        measured.append({name: np.asarray(array) for name, array in found.items()})
    return {name: np.concatenate([each[name] for each in measured])[:count] for name in measured[0]}


def _streamed(
    params: Any, tokens: NDArray[np.int32], lengths: NDArray[np.int_], edits: Edits, spec: ForwardSpec
) -> NDArray[np.floating[Any]]:
    """Score every position of texts that are read in chunks: loss, and whether the token is the likeliest, float [B, T, 2]."""
    states: Any = None
    losses: list[jax.Array] = []
    for first in range(0, tokens.shape[1] - 1, CHUNK):
        piece = jnp.asarray(tokens[:, first : first + CHUNK + 1])
        nll, states = stream(params, piece, jnp.asarray(lengths, jnp.int32), jnp.int32(first), states, edits, spec=spec)
        losses.append(nll)
    return np.concatenate(losses, axis=1)


def _check_quantised(how: Quantisation, edits: Edits) -> None:
    """Raise an error that names an edit that excludes rounded activations."""
    wrong = [term.site.name for term in edits if term.site in (Site.Q_IN, Site.K_IN, Site.V_IN)]
    if wrong and how.activations is not None:
        raise SinkjaxError(f"an edit at {wrong[0]} acts after the activations are rounded, so the two cannot be combined")


def _check_cached(cache: CachePolicy, how: Quantisation, config: Config, edits: Edits, total: int, past: int) -> None:
    """Raise an error that names an option that excludes a cache policy."""
    refuse_policy(cache, config, edits, total, past)
    per_token = replace(how, scale="token", weights=None)
    if isinstance(cache, ScoredCache) and how.scale != "token" and not per_token.off:
        name = type(cache).__name__
        raise SinkjaxError(f'{name} computes one token at a time, so each token has its own scale: choose scale="token"')
