"""Models of Flax NNX whose architecture is known."""

from __future__ import annotations

from typing import Any

from flax import nnx

from sinkjax.checkpoints.flax_trees import from_flax
from sinkjax.checkpoints.model import Model
from sinkjax.config_files.checks import refuse
from sinkjax.errors import short


def from_nnx(module: Any, config: Any = None, family: str | None = None, **options: Any) -> Model:
    """Make a model from an NNX module, in its present state.

        model = sinkjax.interop.nnx.from_nnx(module, "config.json")
        model = sinkjax.interop.nnx.from_nnx(module, module.config, family="llama")

    Args:
        module: An `nnx.Module` whose submodules have the names of transformers or of the Gemma library, as for `from_flax`.
        config: A config.json (path, folder or mapping), a config of transformers, or a `sinkjax.Config`; None: `module.config`.
        family: The model type whose names are used, if the config does not state it.
        **options: tokenizer, dtype, ignore_keys, assume and check, as for `from_flax`.

    Returns:
        The model. Only parameters (`nnx.Param`) are read, and no code of the module runs.

    Raises:
        SinkjaxError: It is not a module, or has no config; any error of `from_flax`, which names each tensor that is missing or
            unknown.
    """
    refuse(not isinstance(module, nnx.Module), f"from_nnx takes an nnx.Module, not {short(module)}")
    config = getattr(module, "config", None) if config is None else config
    refuse(config is None, f"this {type(module).__name__} has no `config`: pass config=, a config.json or a sinkjax.Config")
    return from_flax(config, nnx.state(module, nnx.Param), family, **options)
