"""Released models by short name, of which only the shapes ship."""

from __future__ import annotations

import jax

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model import params


def test_a_short_name_can_have_random_weights_without_a_network():
    """Shapes only: 1.1 billion numbers would take a while."""
    checkpoint = open_checkpoint("untrained:tinyllama-1.1b")
    assert (checkpoint.source["kind"], checkpoint.initializer_range, checkpoint.tokenizer) == ("untrained", 0.02, None)
    shapes = jax.eval_shape(lambda: params.init(checkpoint.config, 0, "bfloat16", 0.02))
    params.check(shapes, checkpoint.config)
