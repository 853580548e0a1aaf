"""Layouts of the residual stream (where a block has norms, and its MLP's input), by the names of `Config.norm_place`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """The structure of a block around attention and the MLP.

    inputs: whether the inputs of attention and the MLP are normed. outputs: whether their outputs are, before the addition. sums:
    whether the residual stream is after each addition; then no norm follows the last block. parallel: whether the MLP reads the
    block's input, as attention does, and not what attention made of it. shared: whether it reads it through attention's norm.
    """

    inputs: bool = False
    outputs: bool = False
    sums: bool = False
    parallel: bool = False
    shared: bool = False

    @property
    def norms(self) -> tuple[str, ...]:
        """The leaves of a block's norms."""
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
