"""`sinkjax verify`: a model here and in transformers, on eight tokens."""

from __future__ import annotations

from dataclasses import dataclass

import sinkjax
from sinkjax.cli.common import Options
from sinkjax.cli.options import Model
from sinkjax.config_files.checks import refuse
from sinkjax.model.names import Attention
from sinkjax.report.terminal import show
from sinkjax.runtime.backend import start_jax, use_all_cores


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Options):
    """Compute eight tokens with transformers and with sinkjax from the same files, and print the largest difference after each
    block. If one is more than rounding, the exit code is 2."""

    model: Model
    """preset, folder, hub id or .gguf file"""
    revision: str | None = None
    """branch, tag or commit of a hub id"""
    ignore_keys: tuple[str, ...] = ()
    """keys of the model's config.json or metadata, or tensors, to ignore because no number depends on them"""
    attention_impl: Attention = "auto"
    """implementation of attention here; auto: sinkjax, because eight tokens are few"""


def verify(options: VerifyOptions) -> None:
    """compare a model with transformers, block by block, on eight tokens"""
    use_all_cores()
    start_jax(options.platform, "float32")
    how = options.attention_impl
    comparison = sinkjax.verify(options.model, options.revision, options.ignore_keys, attention_impl=how)
    note = f"eight tokens, {comparison.dtype}; rounding explains up to {comparison.tolerance:g} of a position's vector"
    show(f"{options.model} here and in transformers", ("after", "largest difference", "relative"), comparison.rows(), note)
    other = f"{options.model} computes something else in transformers than here: it differs first after {comparison.first}"
    refuse(comparison.first is not None, other)
