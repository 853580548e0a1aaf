"""Short names, for configs, of model parts and computation options. This module does not import JAX.

The tables from names to records are in `normalisers.py` and in `tasks/language_model/model.py`.
"""

from __future__ import annotations

from typing import Literal

Dtype = Literal["float32", "bfloat16", "float16", "float64"]
_Softmax = Literal["softmax", "sink-logit", "off-by-one"]
_Unnormalised = Literal["relu-none", "relu-index", "relu-count", "sigmoid", "elu"]
_Rescaled = Literal["softpick", "clipped", "scaled", "softmax-p", "sigmoid-p", "sigmoid-sum", "elu-sum"]
_Linear = Literal["elu-kernel", "elu-kernel-sum", "identity", "identity-max", "mlp-kernel", "mlp-kernel-max"]
NormaliserName = Literal[_Softmax, _Unnormalised, _Rescaled, _Linear]
PositionName = Literal["rope", "none", "sinusoidal", "learned", "alibi", "relative", "bucket"]
NormPlaceName = Literal["pre", "post", "sandwich", "output", "parallel", "parallel-shared", "none"]
NormName = Literal["rms", "layer", "single-scale", "tanh"]
MLPName = Literal["swiglu", "geglu", "reglu", "silu", "gelu", "relu"]
GateName = Literal["none", "head", "element", "value", "shared", "constant", "non-sparse", "value-scale"]
HeadNormName = Literal["none", "shared", "head", "head-offset"]
AttentionBiasName = Literal["none", "sink-token", "kv", "k", "v"]
BiasValueName = Literal["zero", "unit", "ones"]
Precision = Literal["highest", "high", "default"]
Attention = Literal["auto", "sinkjax", "fused", "pallas"]
TrainedAttention = Literal["auto", "sinkjax", "fused"]  # those with a derivative
