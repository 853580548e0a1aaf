"""Requirements on a model: the parts that a study needs, the premises of claims, and identities that the code or edit forces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sinkjax.analysis import metrics
from sinkjax.analysis.estimates import three_digits
from sinkjax.analysis.judgement import SMALL
from sinkjax.errors import SinkjaxError
from sinkjax.model.attention_bias import ValueBias
from sinkjax.model.config import Config
from sinkjax.model.normalisers import Softmax
from sinkjax.model.norms import AfterRotation, OffsetRMSNorm, RMSNorm
from sinkjax.model.positions import AddedPosition, ScorePosition
from sinkjax.study.measures import Measure
from sinkjax.study.numbers import Numbers
from sinkjax.study.settings import UNTRAINED
from sinkjax.study.work import Selection, Sweep

MASSIVE_SIZE = metrics.THRESHOLD  # the part of Sun et al.'s definition (2024, section 2) on the size of one activation
CHAT = ("<|im_start|>",)  # tokens that start a chat turn; they did not separate documents in pretraining
# All other positions are added to scores.
POSITIONS = {"Rope": "rotary", "LayerRopes": "rotary", "Learned": "added", "Sinusoidal": "added", "NoPosition": "none"}
RMS = RMSNorm | OffsetRMSNorm
Test = Callable[[Numbers], tuple[bool, str]]  # whether it holds, and the number that decides


def kind_of_positions(architecture: Config) -> str:
    """Return how a model encodes positions: "rotary", "added" (to the embedding), "scores" (added to scores) or "none".

    Args:
        architecture: The model's config, or its plain fields from a store.

    Returns:
        The kind.
    """
    position = architecture.position
    name = "Rope" if isinstance(position, dict) else str(position).partition("(")[0]
    return POSITIONS.get(name, "scores")


def needs(study: str, architecture: Config, *parts: str) -> None:
    """Raise unless the model has a vocabulary, as every study on prompts needs, and these parts; name the first that it lacks."""
    one, plain = architecture, architecture.normaliser == Softmax()
    scales = one.score_scale if isinstance(one.score_scale, tuple) else (one.score_scale,)
    usual = one.head_dim**-0.5
    growth, layout = [rope.growth for rope in one.ropes], f"the layout {one.norm_place!r}"
    beside = str(one.kv_bias or "a soft cap on scores")
    present: dict[str, tuple[bool, str]] = {  # part -> whether the model has it, and its replacement
        "vocabulary": (one.vocab_size is not None, ""),
        "rotary positions": (one.rope_of(0) is not None, ""),
        "embedding without positions": (not isinstance(one.position, AddedPosition), str(one.position)),
        "plain embedding": (not one.embed_norm and one.embed_width is None, ""),
        "scores without positions": (not isinstance(one.position, ScorePosition), str(one.position)),
        "scores without a kernel": (not one.normaliser.kernel, str(one.normaliser)),
        "scores without a soft cap": (one.caps.scores is None, ""),
        "position vectors": (isinstance(one.position, AddedPosition), ""),
        "query biases": (one.qkv_bias, ""),
        "keys without a LayerNorm": (isinstance(getattr(one.qk_norm, "norm", one.qk_norm), RMS | None), ""),
        "rotation after all norms": (not isinstance(one.qk_norm, AfterRotation), str(one.qk_norm)),
        "queries without growth": (not any(growth), ", ".join(map(str, growth))),
        "causal mask": (one.prefix is None, f"a prefix of {one.prefix}"),
        "norm": (one.norm is not None, ""),
        "RMSNorm": (isinstance(one.norm, RMS), str(one.norm)),
        "pre-norm": (one.layout.inputs and not one.layout.parallel, layout),  # outputs may be normed too
        "norm before attention": (one.layout.inputs, layout),
        "MLP": (one.mlp_width is not None, ""),
        "gated MLP": (one.gated_mlp, ""),
        "MLP without experts": (one.experts is None, ""),
        "concatenated heads": (not one.summed_heads, ""),
        "softmax": (
            plain and isinstance(one.kv_bias, ValueBias | None) and one.caps.scores is None,
            beside if plain else str(one.normaliser),
        ),
        "sliding windows": (any(window is not None for window in one.windows or ()), ""),
        "usual scale": (
            all(scale is None or scale == usual for scale in scales),
            f"scores scaled by {', '.join(f'{scale or usual:g}' for scale in scales)}",
        ),
    }
    for part in ("vocabulary", *parts):
        has, instead = present[part]
        if not has:
            lack = f"; this model has {instead}" if instead else ", which this model lacks"
            raise SinkjaxError(f"{study} needs {part}{lack}")


@dataclass(frozen=True, eq=False)
class Premise:
    """A condition that a model must meet for a paper's claim to apply to it, by the paper's own definition.

    Attributes:
        test: Function that returns whether it holds, and the number that decides.
        fits: Function that returns whether it can hold in an architecture. If not, the claim's controls and twin do not run.
    """

    test: Test
    fits: Callable[[Config], bool] = lambda architecture: True


def all_of(*premises: Premise) -> Premise:
    """Return the premise that several premises hold; the first one that fails is reported."""

    def test(numbers: Numbers) -> tuple[bool, str]:
        results = [premise.test(numbers) for premise in premises]
        return next((one for one in results if not one[0]), (True, "; ".join(text for _, text in results)))

    return Premise(test, lambda architecture: all(one.fits(architecture) for one in premises))


def reaches(measure: Measure, sweep: Sweep, least: float) -> Premise:
    """Return the premise that a measure's unedited mean over documents is at least a cut-off stated by a paper."""
    return Premise(lambda numbers: _unedited(numbers, measure, sweep, least, at_least=True))


def below(measure: Measure, sweep: Sweep, most: float) -> Premise:
    """Return the premise that a measure's mean over documents, without an edit, is below a cut-off that a paper states."""
    return Premise(lambda numbers: _unedited(numbers, measure, sweep, most, at_least=False))


def _unedited(numbers: Numbers, measure: Measure, sweep: Sweep, cut: float, at_least: bool) -> tuple[bool, str]:
    mean = float(numbers.first(measure, sweep).mean())
    holds = mean >= cut if at_least else mean < cut
    return holds, f"{measure.name} is {three_digits(mean)}, and must be {'at least' if at_least else 'below'} {cut:g}"


def is_sink(measure: Measure, sweep: Sweep, other: Measure) -> Premise:
    """Return the premise that there is a sink to move: a key that gets more attention than every other key, and than in the twin.

    Causal attention alone favours the first keys, so the share must exceed the untrained twin's by more than a tenth of itself.

    Args:
        measure: The attention to the key.
        sweep: The sweep whose unedited model is measured; its untrained twin is measured for this premise.
        other: The attention to the strongest other key.
    """
    return Premise(lambda numbers: _sinks(numbers, measure, sweep, other))


def _sinks(numbers: Numbers, measure: Measure, sweep: Sweep, other: Measure) -> tuple[bool, str]:
    attention, strongest = (numbers.first(of, sweep) for of in (measure, other))
    means = [three_digits(values.mean()) for values in (attention, strongest)]
    text = f"{measure.name} is {means[0]}, and must be above {means[1]}, the {other.name}"
    if str(getattr(numbers.settings, "model", "")).startswith(UNTRAINED):
        return False, "the model is untrained"
    twin = numbers.untrained(measure, sweep)
    share, least = float(attention[: len(twin)].mean()), float(twin.mean())
    if attention.mean() <= strongest.mean():
        return False, text
    text += f"; it must be above {three_digits(least)}, the untrained twin's, by more than {SMALL:.0%} of itself"
    return share - least > SMALL * share, text


def without_bos(sweep: Sweep) -> Premise:
    """Return the premise that the prompts of a sweep have no BOS, so that their first tokens differ."""

    def test(numbers: Numbers) -> tuple[bool, str]:
        bos = numbers.about(sweep)["bos"]
        return bos == "none", f"every prompt must begin with a token of its own, but bos is {bos}"

    return Premise(test)


def keys_without_norm() -> Premise:
    """Return the premise that keys have no norm of their own, so that their lengths can differ."""

    def fits(architecture: Config) -> bool:
        return getattr(architecture, "qk_norm", None) is None  # a store omits unstated fields

    why = "keys must have no norm of their own, as one makes them about equally long"
    return Premise(lambda numbers: (fits(numbers.architecture), why), fits)


def positions_are(*kinds: str) -> Premise:
    """Return the premise that positions are "rotary", "added" (to the embedding), "scores" (added to these) or "none"."""

    def test(numbers: Numbers) -> tuple[bool, str]:
        kind = kind_of_positions(numbers.architecture)
        return kind in kinds, f"positions are {kind}, and must be {' or '.join(kinds)}"

    return Premise(test, lambda architecture: kind_of_positions(architecture) in kinds)


def same(measure: Measure, where: Selection, other: Selection, within: float) -> Test:
    """Return the identity that a measure is the same under two selections of conditions, up to rounding.

    within: the largest difference that rounding explains, in the unit of the measure.
    """

    def test(numbers: Numbers) -> tuple[bool, str]:
        apart = float(np.abs(numbers.edited(measure, where) - numbers.edited(measure, other)).max())
        return apart <= within, f"largest difference in {measure.name}: {apart:.2g}"

    return test


def unchanged(measure: Measure, where: Selection, within: float) -> Test:
    """Return the identity that an edit leaves a measure unchanged, up to rounding.

    within: the largest difference that rounding explains, in the unit of the measure (for a size, of its logarithm).
    """

    def test(numbers: Numbers) -> tuple[bool, str]:
        apart = float(np.abs(numbers.edited(measure, where) - numbers.unedited(measure, where)).max())
        return apart <= within, f"largest change of {measure.name}: {apart:.2g}"

    return test
