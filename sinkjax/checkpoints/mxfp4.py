"""MXFP4, in which OpenAI published gpt-oss's experts: blocks of 32 numbers of 4 bits with one power of two as their scale.

OCP Microscaling Formats (MX) Specification 1.0: each number is an E2M1 float (sign, two bits of exponent, one of mantissa), and a
scale is an E8M0 byte, 2^(byte - 127), of which 255 is NaN. Two numbers share a byte, the first in its lower half.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sinkjax.checkpoints.tensors import Tensor
from sinkjax.config_files.checks import refuse

BLOCKS, SCALES = "_blocks", "_scales"
BYTES = 16  # of a block of 32 numbers
MAGNITUDES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
NUMBERS = np.concatenate([MAGNITUDES, -MAGNITUDES])
PAIRS = np.stack([NUMBERS[np.arange(256) % 16], NUMBERS[np.arange(256) // 16]], axis=1).view(np.float64)[:, 0]  # of each byte
POWERS = np.append(np.ldexp(np.float32(1), np.arange(255) - 127), np.float32(np.nan))


def unpacked(tensors: Mapping[str, Tensor], where: str) -> dict[str, Tensor]:
    """Return the tensors of a file with each pair of blocks and scales as one tensor for each expert.

    "experts.down_proj_blocks" uint8 [experts, outputs, inputs / 32, 16] and "experts.down_proj_scales" uint8 [experts, outputs,
    inputs / 32] are "experts.0.down_proj" [outputs, inputs] and so on, each decoded only when it is read.
    where: the file, for messages. Errors: blocks without scales, or the reverse; another shape or type.
    """
    found = dict(tensors)
    for name in [name for name in tensors if name.endswith((BLOCKS, SCALES))]:
        stem = name.removesuffix(BLOCKS).removesuffix(SCALES)
        missing = next((stem + end for end in (BLOCKS, SCALES) if stem + end not in tensors), None)
        refuse(missing is not None, f"{where} has {name!r}, but no {missing!r}, without which its numbers are unknown")
        if name.endswith(BLOCKS):
            blocks, scales = found.pop(name), found.pop(stem + SCALES)
            packed = (
                len(blocks.shape) == 4 and (*scales.shape, BYTES) == blocks.shape and blocks.stored == scales.stored == "uint8"
            )
            shapes = f"{blocks.stored} {blocks.shape} and {scales.stored} {scales.shape}"
            wanted = f"uint8 [experts, outputs, inputs / 32, {BYTES}] and [experts, outputs, inputs / 32]"
            refuse(not packed, f"{name} of {where} and its scales are {shapes}, not {wanted}")
            module, _, leaf = stem.rpartition(".")
            found |= {f"{module}.{expert}.{leaf}": _of_expert(blocks, scales, expert) for expert in range(blocks.shape[0])}
    return found


def _of_expert(blocks: Tensor, scales: Tensor, expert: int) -> Tensor:
    """Make the tensor of one expert. Its raw rows are the bytes of a row's blocks, then of their scales."""
    experts, outputs, count, _ = blocks.shape

    def part(start: int, stop: int) -> np.ndarray:
        each = [tensor.raw().reshape(experts, outputs, -1)[expert, start:stop] for tensor in (blocks, scales)]
        return np.concatenate(each, axis=1)

    return Tensor((outputs, 2 * BYTES * count), lambda: part(0, outputs), decode, "MXFP4", part=part)


def decode(raw: np.ndarray) -> np.ndarray:
    """Return the numbers, float32 [rows, inputs], of rows as `_of_expert` has them, exact unless they overflow to infinity."""
    raw = raw.reshape(len(raw), -1)
    count = raw.shape[1] // (BYTES + 1)
    numbers = PAIRS.take(raw[:, : BYTES * count]).view(np.float32).reshape(len(raw), count, 2 * BYTES)
    with np.errstate(over="ignore"):
        numbers *= POWERS.take(raw[:, BYTES * count :])[..., None]
    return numbers.reshape(len(raw), -1)
