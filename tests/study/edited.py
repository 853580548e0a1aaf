"""What jitted code sees of an edit, to compare the edits of a study with those of sinkjax's constructors."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import sinkjax


def arrays(edit: sinkjax.Edit, architecture: Any, length: int) -> tuple[Any, list[np.ndarray]]:
    """The kind of an edit, and its arrays for one prompt."""
    leaves, tree = jax.tree.flatten(edit.resolve(architecture, [length], length))
    return tree, [np.asarray(leaf) for leaf in leaves]


def assert_same(made: sinkjax.Edit, expected: sinkjax.Edit, architecture: Any, length: int = 16) -> None:
    """Fail unless two edits are the same arrays."""
    (tree, leaves), (other, others) = arrays(made, architecture, length), arrays(expected, architecture, length)
    assert tree == other
    for leaf, wanted in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, wanted)
