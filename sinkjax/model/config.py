"""A frozen, hashable record of a model's architecture, used as a static argument of jitted functions.

Variants are tagged sub-records (`Rope` or `NoPosition`, `RMSNorm` or `LayerNorm`, `ReLU`, ...), so that the forward pass reads as
cases and not as flags. Settings that a checkpoint must state have no default here: norm epsilon, rotary base, head width,
key-value heads and tying.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any

from sinkjax.config_files.checks import LARGEST, MOST, is_number, refuse
from sinkjax.errors import SinkjaxError, one_of, short
from sinkjax.model.attention_bias import AttentionBias, KeyBias, SinkToken
from sinkjax.model.experts import ClampedSwiGLU, Experts
from sinkjax.model.heads import Gate, HeadNorm
from sinkjax.model.normalisers import Normaliser, Softmax
from sinkjax.model.norms import AfterRotation, Norm, QueryKeyNorm, RMSNorm
from sinkjax.model.positions import AddedPosition, Learned, PowerAlibi, ScorePosition, Sinusoidal
from sinkjax.model.rotary import LayerRopes, Rope
from sinkjax.model.xielu import XIELU


@dataclass(frozen=True)
class Layout:
    """The structure of a block around attention and the MLP.

    inputs: whether the inputs of attention and the MLP are normed. outputs: whether their outputs are normed before the addition.
    sums: whether the residual stream is normed after each addition; then no norm follows the last block. parallel: whether
    the MLP reads the block's input, like attention, instead of attention's result. shared: whether it reads it through
    attention's norm.
    """

    inputs: bool = False
    outputs: bool = False
    sums: bool = False
    parallel: bool = False
    shared: bool = False

    @property
    def norms(self) -> tuple[str, ...]:
        """Names of the leaves of a block's norms."""
        around = ("attn_norm",) if self.shared else ("attn_norm", "mlp_norm")
        return (around if self.inputs or self.sums else ()) + (("attn_out_norm", "mlp_out_norm") if self.outputs else ())


LAYOUTS = {
    "pre": Layout(inputs=True),
    "post": Layout(sums=True),  # Vaswani et al. 2017; OPT-350m; Gu et al. 2025
    "sandwich": Layout(inputs=True, outputs=True),  # Gemma 2 and 3
    "output": Layout(outputs=True),  # OLMo 2
    "parallel": Layout(inputs=True, parallel=True),  # GPT-NeoX, Falcon 40B
    "parallel-shared": Layout(inputs=True, parallel=True, shared=True),  # GPT-J, Phi, Falcon 7B, StableLM 2 12B
}


NORM_PLACES = tuple(LAYOUTS)
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "gelu_bloom", "relu", "relu2")


@dataclass(frozen=True)
class NoPosition:
    """No positions in queries and keys; only the causal mask depends on position."""


Position = Rope | LayerRopes | NoPosition | AddedPosition | ScorePosition


# The fields of a config that are records: their types, and these as text.
RECORDS: dict[str, tuple[Any, str]] = {
    "norm": (Norm | None, "a record of sinkjax.model.norms or None"),
    "qk_norm": (QueryKeyNorm | None, "a record of sinkjax.model.norms or None"),
    "position": (Position, "Rope, NoPosition or a record of sinkjax.model.positions"),
    "normaliser": (Normaliser, "a record of sinkjax.model.normalisers"),
    "gate": (Gate | None, "a record of sinkjax.model.heads or None"),
    "kv_bias": (AttentionBias | None, "a record of sinkjax.model.attention_bias or None"),
}


@dataclass(frozen=True)
class Multipliers:
    """Constant factors on the embedding rows, the outputs of attention and the MLP, and the logits (Granite, Gemma)."""

    embedding: float = 1.0
    residual: float = 1.0
    logits: float = 1.0


@dataclass(frozen=True)
class Caps:
    """Soft caps c tanh(x / c) on scores before LOGITS and on token logits (Gemma 2); None for no cap."""

    scores: float | None = None
    logits: float | None = None


FORMER = {"kv_bias": "attention_bias"}  # names under which stored results and saved models have a field


@dataclass(frozen=True, kw_only=True)
class Config:
    """A decoder-only transformer: a Llama, possibly with parts removed or replaced.

    An absent part has no parameters. `activation` is ignored without an MLP, and `tied` without a vocabulary.

    Attributes:
        layers: Number of blocks L.
        width: Width d of the residual stream.
        heads: Query heads H.
        kv_heads: Key-value heads K; query head h reads key-value head h // (H / K).
        head_dim: Width D of one head.
        mlp_width: Hidden width F of the MLP; None: no MLP.
        vocab_size: Number of tokens V; None for a model that takes vectors and so has no embedding or unembedding.
        context: Maximum length of a prompt, in tokens.
        norm: Norm of the residual stream, or None.
        position: Rotary, none, or a record of sinkjax/model/positions.py, added to the embedding or to the scores.
        activation: One of ACTIVATIONS, for a gate that multiplies the hidden units of the MLP (SwiGLU, GeGLU, ReGLU), or, with
            gated_mlp=False, for the hidden units themselves; or a record of gate and units together (sinkjax/model/experts.py),
            or of units with learned parameters (sinkjax/model/xielu.py).
        tied: Whether the unembedding is the embedding.
        qkv_bias, out_bias, mlp_bias: Which projections have a bias.
        windows: None (every layer sees all earlier keys), or for each layer the number of last keys that a query sees, including
            its own, or None. (A sliding window; what Gu et al. 2025 call a shifted window is the same operator.)
        normaliser: The function from scores to weights.
        score_scale: Factor on the scores, or one per layer; None: 1 / sqrt(head_dim).
        norm_place: The places of a block's norms, and the input of its MLP: a key of `LAYOUTS`.
        kv_bias: A key and value that belong to no token, or only a value (sinkjax/model/attention_bias.py), or None.
        gated_mlp: Whether the MLP has a gate.
        summed_heads: Whether the heads' outputs are added and share one W_O [D, d], instead of each having its own (Gu et al.
            2025).
        prefix: Number of first positions that see each other in both directions and that all later positions see regardless of
            any window, or None. Tokens of the prefix have no loss, because the positions that would predict them see them.
        qk_norm: Norm of each query and key, by default before the rotation (sinkjax/model/norms.py), or None.
        head_norm: Norm of each head's output before a gate, or None.
        gate: Gate on each head's output or its values (sinkjax/model/heads.py), or None.
        residual: Whether a block's input is added to the outputs of attention and the MLP.
        qkv_clip: Largest absolute value of queries, keys and values before a norm, or None.
        embed_norm: Whether the embedding is normed before the first block.
        embed_width: Width of the embedding rows, with one matrix into the residual stream and one out of it after the last norm;
            None for the residual width, without these matrices.
        unembed_bias: Whether the logits have a bias.
        experts: A mixture of MLPs, each of width mlp_width, in place of a single MLP, or None (sinkjax/model/experts.py).
        multipliers: Constant factors.
        caps: Soft caps on scores and logits.

    Raises:
        SinkjaxError: The fields do not fit together, or one is out of range.
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int | None
    vocab_size: int | None
    context: int
    norm: Norm | None
    position: Position
    activation: str | ClampedSwiGLU | XIELU
    tied: bool
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    windows: tuple[int | None, ...] | None = None
    normaliser: Normaliser = field(default=Softmax())
    score_scale: float | tuple[float, ...] | None = None
    gate: Gate | None = None
    residual: bool = True
    prefix: int | None = None
    norm_place: str = "pre"
    gated_mlp: bool = True
    summed_heads: bool = False
    qk_norm: QueryKeyNorm | None = None
    head_norm: HeadNorm | None = None
    kv_bias: AttentionBias | None = None
    qkv_clip: float | None = None
    embed_norm: bool = False
    embed_width: int | None = None
    unembed_bias: bool = False
    experts: Experts | None = None
    multipliers: Multipliers = Multipliers()
    caps: Caps = Caps()

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "head_dim", "context", "mlp_width", "vocab_size"):
            _refuse_size(name, getattr(self, name))
        for name in [entry.name for entry in fields(self) if entry.type == "bool"]:
            refuse(not isinstance(getattr(self, name), bool), f"{name} must be True or False, not {getattr(self, name)!r}")
        for name, (kind, what) in RECORDS.items():
            refuse(not isinstance(getattr(self, name), kind), f"{name} must be {what}, not {getattr(self, name)!r}")
        refuse(self.heads % self.kv_heads > 0, f"{self.heads} query heads cannot share {self.kv_heads} key-value heads evenly")
        odd = isinstance(self.position, Sinusoidal) and self.width % 2 > 0
        refuse(odd, f"sinusoidal positions need an even width, not {self.width}")
        for rope in self.ropes:
            rope.check(self.head_dim)
        if isinstance(self.position, LayerRopes):
            self._refuse_other_length("rotary positions by layer", self.position.layers)
            two = isinstance(self.kv_bias, SinkToken)
            refuse(two, "a sink token has one rotary index, so it needs the same rotary positions in all layers")
        late = isinstance(self.kv_bias, SinkToken) and isinstance(self.qk_norm, AfterRotation)
        refuse(late, "a sink token needs a norm of queries and keys before the rotation, and qk_norm is after it")
        if isinstance(self.kv_bias, KeyBias) and (self.kv_bias.dims or 0) > self.head_dim:
            raise SinkjaxError(f"dims of a key bias must be at most head_dim ({self.head_dim}), not {self.kv_bias.dims}")
        scales = self.score_scale if isinstance(self.score_scale, tuple) else (self.score_scale,)
        numbers = all(scale is None or is_number(scale) for scale in scales)
        refuse(not numbers, f"score_scale must be a number, one for each layer, or None, not {self.score_scale!r}")
        positive = all(scale is None or 0 < scale < float("inf") for scale in scales)
        refuse(not positive, f"score_scale must be positive, or None for 1 / sqrt(head_dim), not {self.score_scale}")
        self._refuse_other_length("score_scale", self.score_scale)
        no_mlp, no_norm, no_tokens = self.mlp_width is None, self.norm is None, self.vocab_size is None
        refuse(no_mlp and self.mlp_bias, "mlp_bias is for models with an MLP, and mlp_width is None")
        refuse(no_mlp and not self.gated_mlp, "gated_mlp=False is for models with an MLP, and mlp_width is None")
        one_of("norm_place", self.norm_place, NORM_PLACES)
        placed = f'norm_place="{self.norm_place}" is for models with a'
        refuse(no_norm and self.norm_place != "pre", f"{placed} norm, and norm is None")
        refuse(self.layout.parallel and not self.residual, f"{placed} residual stream, and residual is False")
        refuse(no_norm and self.embed_norm, "embed_norm is for models with a norm, and norm is None")
        tokens = "embed_width and unembed_bias are for models with a vocabulary, and vocab_size is None"
        refuse(no_tokens and (self.embed_width is not None or self.unembed_bias), tokens)
        beyond = self.prefix is not None and self.prefix not in range(1, self.context + 1)
        refuse(beyond, f"prefix must be None or an int from 1 to the context ({self.context}), not {self.prefix!r}")
        given: Any = self.windows
        sizes = isinstance(given, tuple | None) and all(type(window) is int or window is None for window in given or ())
        refuse(not sizes, f"windows must be None or a tuple of an int or None for each layer, not {self.windows!r}")
        self._refuse_other_length("windows", self.windows)
        refuse(any(window is not None and window < 1 for window in given or ()), "a window must hold at least 1 key")
        if not isinstance(self.activation, ClampedSwiGLU | XIELU):
            one_of("activation", self.activation, ACTIVATIONS)
        elif self.gated_mlp == isinstance(self.activation, XIELU):
            gated = "an MLP without a gate" if self.gated_mlp else "a gated MLP"
            raise SinkjaxError(f"{self.activation} requires {gated}, but gated_mlp is {self.gated_mlp}")
        ungated = self.experts is not None and (no_mlp or not self.gated_mlp)
        refuse(ungated, "experts are gated MLPs, so they need mlp_width and gated_mlp")

    def _refuse_other_length(self, name: str, given: Any) -> None:
        if isinstance(given, tuple) and len(given) != self.layers:
            raise SinkjaxError(f"{name} has {len(given)} entries for {self.layers} layers")

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.heads // self.kv_heads

    @property
    def layout(self) -> Layout:
        """The places of a block's norms, and its MLP's input."""
        return LAYOUTS[self.norm_place]

    @property
    def ropes(self) -> tuple[Rope, ...]:
        """The kinds of rotary positions among the layers; () if there are none."""
        if isinstance(self.position, LayerRopes):
            return self.position.kinds
        return (self.position,) if isinstance(self.position, Rope) else ()

    def rope_of(self, layer: int) -> Rope | None:
        """The rotary positions of a layer, or None."""
        if isinstance(self.position, LayerRopes):
            kind = self.position.layers[layer]
            return None if kind is None else self.position.kinds[kind]
        return self.position if isinstance(self.position, Rope) else None

    @property
    def neurons(self) -> int:
        """Number of hidden units of the MLP, over all experts; an error without an MLP."""
        if self.mlp_width is None:
            raise SinkjaxError("this model has no MLP")
        return self.mlp_width * (1 if self.experts is None else self.experts.count)

    @property
    def scale(self) -> float:
        """The factor on the products of queries and keys; an error if it differs between layers."""
        if isinstance(self.score_scale, tuple):
            raise SinkjaxError("this model scales the scores of each layer by a different factor")
        return self.head_dim**-0.5 if self.score_scale is None else self.score_scale

    def identity(self) -> dict[str, Any]:
        """Return the architecture as JSON, for storage with results."""
        stated = {name: _identity(value) if is_dataclass(value) else value for name, value in _stated(self).items()}
        return {FORMER.get(name, name): value for name, value in stated.items()}


def _refuse_size(name: str, value: Any) -> None:
    if value is None and name in ("mlp_width", "vocab_size"):
        return
    of, most = "at least 1 or None" if name == "vocab_size" else "an int of at least 1", MOST.get(name, LARGEST)
    refuse(not isinstance(value, int) or isinstance(value, bool) or value < 1, f"{name} must be {of}, not {short(value)}")
    refuse(value > most, f"{name} must be at most {most}, not {value}")


# Records that have gained optional fields since results were first stored, and the optional fields they had then. Newer fields
# are omitted at their default, so that old results stay valid. All other records list all of their fields.
FIRST: dict[type, tuple[str, ...]] = {
    Config: ("qkv_bias", "out_bias", "mlp_bias", "windows"),
    Rope: ("scaling",),
    Learned: (),
    PowerAlibi: ("steepest", "factor"),
}


def _stated(record: Any) -> dict[str, Any]:
    """Return the fields of a record that identify a result."""
    every = {entry.name: (getattr(record, entry.name), entry.default) for entry in fields(record)}
    always = FIRST.get(type(record), every)
    return {name: value for name, (value, default) in every.items() if name in always or value != default}


def _identity(record: Any) -> Any:
    """Return a record as its `repr`, or as a mapping if the first results stored it that way."""
    if type(record) in (RMSNorm, Rope):
        whole = asdict(record)
        return {name: whole[name] for name in _stated(record)}
    return f"{type(record).__name__}({', '.join(f'{name}={value!r}' for name, value in _stated(record).items())})"
