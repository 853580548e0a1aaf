"""`retrofit`: a trained model whose sink is a learned key and value of each layer, no longer its first token."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from sinkjax.checkpoints.in_memory import from_arrays
from sinkjax.checkpoints.model import Model, check_model
from sinkjax.checkpoints.names import leaf_name
from sinkjax.config_files.checks import is_number, refuse
from sinkjax.data.prompts import is_integer
from sinkjax.errors import one_of, short
from sinkjax.evaluation import pieces_of
from sinkjax.explain.sink_prefix import sink_prefix
from sinkjax.model.attention_bias import AttentionBias, KeyBias, KeyValueBias
from sinkjax.model.params import Params, check_seed
from sinkjax.probes.probe import Probe
from sinkjax.runtime import extras
from sinkjax.runtime.progress import bar
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.forward import forward

if TYPE_CHECKING:
    import optax

VALUES: dict[str, AttentionBias] = {"learned": KeyValueBias(), "zero": KeyBias()}
Learned = dict[str, jax.Array]


@fixed_settings
def retrofit(
    model: Model,
    text: str | Sequence[str] | Any = (),
    steps: int = 0,
    value: str = "learned",
    token: int | None = None,
    batch: int = 8,
    length: int = 128,
    learning_rate: float = 1e-3,
    seed: int = 0,
    progress: bool = True,
) -> Model:
    """Give a model a key and a value per layer and key-value head that every query sees, in place of a sink on its first token.

    They begin as those of a sink prefix (`sinkjax.sink_prefix`), a token that sees only itself. The first token of a text is
    then no longer alone, so it grows no massive activation. Then only these keys and values are trained, by Adam with a cosine
    schedule, on the loss of the next token. They are the key biases of Gu et al. 2025, without a position and without a column
    in the record; what they receive is `attention_received_bias`. Encode texts for the new model with `bos="none"`, also if the
    old one needed its BOS.

    Args:
        model: The model, without a key bias.
        text: A text, several texts, or token ids int [B, T], to train on; cut into blocks of `length` tokens without a BOS.
        steps: Updates; 0 keeps the prefix's keys and values.
        value: "learned"; or "zero", a value that stays 0, so that only the key is learned, as with a sink logit.
        token: The token of the prefix; None: the one that `sinkjax.sink_prefix` chooses.
        batch: Blocks in an update.
        length: Tokens of a block.
        learning_rate: Of the first update.
        seed: Seed of the order of the blocks.
        progress: Whether to show a bar.

    Returns:
        The new model, in the old one's dtype; the old one's arrays are shared. `sinkjax.save` writes it and `sinkjax.load` reads
        it. The formats of other libraries have no such key, so `sinkjax.export` refuses it.

    Raises:
        SinkjaxError: Any error of `sinkjax.sink_prefix`; the model has a key bias; the text has no block of this length; an
            argument is out of range; the extra `train` is missing.
    """
    check_model(model)
    one_of("value", value, VALUES)
    refuse(model.config.kv_bias is not None, f"this model already has {model.config.kv_bias}")
    for name, number, least in (("steps", steps, 0), ("batch", batch, 1), ("length", length, 2)):
        refuse(not is_integer(number) or number < least, f"{name} must be an integer of at least {least}, not {short(number)}")
    wrong = not is_number(learning_rate) or learning_rate <= 0
    refuse(wrong, f"learning_rate must be a number above 0, not {short(learning_rate)}")
    check_seed(seed)
    blocks = _blocks(model, text, length, batch) if steps else None
    prefix = sink_prefix(model, token)
    learned = {"key": prefix.keys[:, 0], "value": prefix.values[:, 0]}
    if value == "zero":
        del learned["value"]
    config = dataclasses.replace(model.config, kv_bias=VALUES[value])
    if blocks is not None:
        learned = _trained(model.params, config, learned, blocks, steps, batch, learning_rate, seed, progress)
    leaves = jax.tree_util.tree_leaves_with_path(_with(model.params, learned))
    arrays = {leaf_name(path): leaf for path, leaf in leaves}
    made = from_arrays(config, arrays, tokenizer=model.tokenizer, dtype=model.source["dtype"])
    kept = {name: model.source[name] for name in ("bos", "eos") if name in model.source}
    return dataclasses.replace(made, source={**made.source, **kept, "name": f"{model.source['name']}, retrofitted"})


def _blocks(model: Model, text: Any, length: int, batch: int) -> np.ndarray:
    """Return all whole blocks of a text, int32 [blocks, length]."""
    cut, _ = pieces_of(model, text, "none", length, None, whole=False)
    whole = np.array([piece for piece in cut if len(piece) == length], np.int32).reshape(-1, length)
    refuse(len(whole) < batch, f"the text has {len(whole)} blocks of {length} tokens, fewer than a batch of {batch}")
    return whole


def _with(params: Params, learned: Learned) -> Params:
    return {**params, "layers": {**params["layers"], "attention_bias": learned}}


def _trained(
    params: Params,
    config: Any,
    learned: Learned,
    blocks: np.ndarray,
    steps: int,
    batch: int,
    learning_rate: float,
    seed: int,
    progress: bool,
) -> Learned:
    """Return keys and values after training; blocks are drawn without replacement, in as many rounds as needed."""
    extras.require("training", "train")
    import optax

    dtype = learned["key"].dtype
    optimiser = optax.adam(optax.cosine_decay_schedule(learning_rate, steps))
    update = functools.partial(_update, config=config, optimiser=optimiser, dtype=dtype)
    rng, rows = np.random.default_rng(seed), np.zeros(0, int)
    learned = jax.tree.map(lambda x: x.astype(jnp.float32), learned)
    state = optimiser.init(learned)
    with bar("retrofit", progress, steps, 0) as advance:
        for step in range(steps):
            while len(rows) < batch:
                rows = np.append(rows, rng.permutation(len(blocks)))
            learned, state, loss = update(learned, state, params, blocks[rows[:batch]])
            rows = rows[batch:]
            advance(step + 1, f"loss {float(loss):.3f}")
    trained: Learned = jax.tree.map(lambda x: x.astype(dtype), learned)
    return trained


@functools.partial(jax.jit, static_argnames=("config", "optimiser", "dtype"))
def _update(
    learned: Learned,
    state: optax.OptState,
    params: Params,
    tokens: jax.Array,
    config: Any,
    optimiser: optax.GradientTransformation,
    dtype: Any,
) -> tuple[Learned, optax.OptState, jax.Array]:
    """Return the keys and values, the optimiser's state and the loss after one update on tokens [B, T]."""

    def loss(learned: Learned) -> jax.Array:
        whole = _with(params, jax.tree.map(lambda x: x.astype(dtype), learned))
        nll = forward(whole, tokens, config, probe=Probe(nll=True), logits=False, remat=True).record["nll"]
        return jnp.asarray(nll[:, :-1].mean())

    value, slope = jax.value_and_grad(loss)(learned)
    changes, state = optimiser.update(slope, state, learned)
    return jax.tree.map(jnp.add, learned, changes), state, value
