"""The models of the papers: their shapes ship, fit one device of 16 GB, and their families run at a size that fits a test."""

from __future__ import annotations

import jax

from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model import params
from sinkjax.model.rotary import Llama3Scaling

OF_THE_PAPERS = ("llama-2-7b", "llama-3.2-3b", "mistral-7b", "tinyllama-1.1b")


def test_what_the_papers_need_of_them():
    configs = {name: open_checkpoint(name, weights=False).config for name in OF_THE_PAPERS}
    assert configs["llama-3.2-3b"].position.scaling == Llama3Scaling(32.0, 1.0, 4.0, 8192)
    assert configs["llama-3.2-3b"].tied
    assert configs["mistral-7b"].windows == (4096,) * 32
    assert {name: config.heads // config.kv_heads for name, config in configs.items()} == {
        "llama-2-7b": 1,
        "llama-3.2-3b": 3,
        "mistral-7b": 4,
        "tinyllama-1.1b": 8,
    }


def test_a_short_name_can_have_random_weights_without_a_network():
    """Shapes only: 1.1 billion numbers would take a while."""
    checkpoint = open_checkpoint("untrained:tinyllama-1.1b")
    assert (checkpoint.source["kind"], checkpoint.initializer_range, checkpoint.tokenizer) == ("untrained", 0.02, None)
    shapes = jax.eval_shape(lambda: params.init(checkpoint.config, 0, "bfloat16", 0.02))
    params.check(shapes, checkpoint.config)
