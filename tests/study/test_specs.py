"""Studies on models with less in them: each refuses what it needs in one sentence, and can be planned without all else."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from sinkjax import SinkjaxError
from sinkjax.checkpoints.load import open_checkpoint
from sinkjax.model.attention_bias import KeyBias
from sinkjax.model.config import Caps, Config, NoPosition
from sinkjax.model.experts import Experts
from sinkjax.model.normalisers import NAMED
from sinkjax.model.norms import AfterRotation, LayerNorm, RMSNorm
from sinkjax.model.positions import Alibi, Learned
from sinkjax.model.rotary import QueryGrowth, Rope
from sinkjax.study.parts import specs
from sinkjax.study.registry import choose, find, studies, trains
from sinkjax.study.run import work
from tests.study.tiny import study, write_both

LESS: dict[str, tuple[dict[str, Any], str]] = {
    "vocabulary": ({"vocab_size": None}, "needs vocabulary, which this model lacks"),
    "grows": ({"position": Rope(1e4, growth=QueryGrowth(0.1, 64))}, r"QueryGrowth\(beta=0.1, original_context=64\)"),
    "vectors": ({"position": NoPosition()}, "needs position vectors, .*lacks"),
    "bias": ({"qkv_bias": False}, "needs query biases, .*lacks"),
    "rope": ({"position": NoPosition()}, "needs rotary positions, .*lacks"),
    "added": ({"position": Learned()}, r"positions; this model has Learned\(\)"),
    "scored": ({"position": Alibi()}, r"positions; this model has Alibi\(\)"),
    "late": ({"qk_norm": AfterRotation(RMSNorm(1e-5))}, r"AfterRotation\(norm=RMSNorm\(.*\)\)"),
    "causal": ({"prefix": 5}, "prefix of 5"),
    "alone": ({"embed_norm": True}, "needs plain embedding, .*lacks"),
    "rms": ({"norm": LayerNorm(1e-5)}, r"needs RMSNorm; this model has LayerNorm\(eps=1e-05, gain=True, bias=True\)"),
    "norm": ({"norm": None}, "needs norm, .*lacks"),
    "pre": ({"norm_place": "parallel"}, "needs pre-norm; this model has the layout 'parallel'"),
    "before": ({"norm_place": "post"}, "norm .*; this model has the layout 'post'"),
    "mlp": ({"mlp_width": None}, "needs MLP, .*lacks"),
    "gate": ({"gated_mlp": False}, "needs gated MLP, .*lacks"),
    "single": ({"experts": Experts(4, 2)}, "needs MLP without experts, .*lacks"),
    "heads": ({"summed_heads": True}, "needs concatenated heads, .*lacks"),
    "softmax": ({"normaliser": NAMED["sigmoid"]}, r"needs softmax; this model has Sigmoid\(shift=0.0\)"),
    "extra": ({"kv_bias": KeyBias()}, r"softmax; this model has KeyBias\(.*\)"),
    "kernel": ({"normaliser": NAMED["elu-kernel"]}, r"kernel; this model has EluKernel\(\)"),
    "keys": ({"qk_norm": LayerNorm(1e-5)}, "needs keys without a LayerNorm, .*lacks"),
    "cap": ({"caps": Caps(scores=50.0)}, "needs .*soft cap.*"),
    "scale": ({"score_scale": 1.0}, "usual scale; this model has scores scaled by 1"),
    "windows": ({"windows": None}, "needs sliding windows, .*lacks"),
}
NEEDED = {
    "background/circuit": {"mlp", "pre"},
    "background/compression": {"mlp"},
    "background/kinds": {"softmax", "cap", "extra", "causal"},
    "background/mechanism": {"vectors", "bias", "mlp"},
    "background/patch": {"mlp"},
    "background/quantise": {"mlp"},
    "background/windows": {"windows"},
    "gu/angles": {"scale", "scored", "kernel", "cap"},
    "gu/repeat-bound": {"softmax", "cap", "extra", "causal", "scale", "late", "grows"},
    "gu/positions": {"scored"},
    "kiya/after-softmax": {"softmax", "cap", "extra"},
    "kiya/embedding": {"norm", "before", "added", "alone", "late"},
    "kiya/figures": {"rope", "alone", "norm", "before", "softmax", "cap", "extra", "late", "grows"},
    "kiya/predictions": {"softmax", "cap", "extra", "causal", "added"},
    "kiya/rope": {"rope", "alone", "norm", "before", "softmax", "cap", "extra", "late", "grows"},
    "kiya/scan": {"kernel"},
    "kiya/split": {"softmax", "cap", "extra", "causal"},
    "li/dominance": {"norm", "rms", "pre", "added", "scored", "kernel", "keys"},
    "li/isolate": {"softmax", "cap", "extra", "causal"},
    "li/mediation": {"softmax", "cap", "extra", "causal", "mlp", "gate", "single"},
    "li/super-neurons": {"mlp", "gate", "single"},
    "li/variance": {"softmax", "cap", "extra", "causal", "heads"},
}
STUDIES = [name for name in studies() if name != "sweep" and not trains(name)]


@pytest.fixture
def architecture(name: str) -> Config:
    """SmolLM2's, with all that a study needs."""
    plain = open_checkpoint("smollm2-135m", weights=False).config
    position = Learned() if "vectors" in needed(name) else plain.position
    return dataclasses.replace(plain, windows=(512,) * plain.layers, qkv_bias=True, position=position)


def needed(name: str) -> set[str]:
    return NEEDED.get(name, set()) | {"vocabulary"}


@pytest.mark.parametrize("name", STUDIES)
def test_what_a_study_needs_is_refused_in_one_sentence(architecture, name: str) -> None:
    for part in needed(name):
        changes, words = LESS[part]
        with pytest.raises(SinkjaxError, match=rf"^{name} .*{words}$"):
            specs(find(name).trace(choose(name).config, dataclasses.replace(architecture, **changes)))


def test_studies_that_need_something_are_all_listed() -> None:
    assert set(NEEDED) <= set(STUDIES)


@pytest.mark.parametrize("name", ["kiya/embedding", "kiya/rope"])
def test_a_model_without_a_bos_is_refused_before_it_is_loaded(name, tmp_path) -> None:
    files = write_both(tmp_path)
    (files / "model" / "tokenizer_config.json").write_text('{"bos_token": null}')
    with pytest.raises(SinkjaxError, match=r"model name no BOS token; .*bos"):
        list(work(study(name, files)))
