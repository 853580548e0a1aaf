"""A small sweep for tests that start processes: one edit a call, thirteen calls."""

from __future__ import annotations

import numpy as np

import sinkjax
from sinkjax.checkpoints.model import Model
from sinkjax.model import params
from sinkjax.model.config import Config, RMSNorm
from sinkjax.model.rotary import Rope
from sinkjax.sweeps import plan

plan.TOKENS_PER_CALL = {**plan.TOKENS_PER_CALL, "cpu": 1}
CONFIG = Config(
    layers=2,
    width=16,
    heads=2,
    kv_heads=2,
    head_dim=8,
    mlp_width=24,
    vocab_size=61,
    context=64,
    norm=RMSNorm(1e-5),
    position=Rope(1e4),
    activation="silu",
    tied=False,
)
MODEL = Model(CONFIG, params.init(CONFIG, seed=0), None, {})
TOKENS = np.random.default_rng(0).integers(0, 61, (4, 16))
EDITS = [sinkjax.compose()] + [sinkjax.mask_key(key, layers=range(last)) for key in range(6) for last in (1, 2)]
PROBE = sinkjax.Probe(attention_received=True, nll=True)
