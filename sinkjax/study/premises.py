"""What a study asks of a model: parts that it needs, premises of claims, and identities, which the code or edit forces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sinkjax.analysis import activations
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
from sinkjax.study.work import Sweep, Where

MASSIVE_SIZE = activations.THRESHOLD  # the part of Sun et al.'s definition (2024, section 2) on the size of one activation
CHAT = ("<|im_start|>",)  # tokens that start a chat turn; they did not separate documents in pretraining
# All other positions are added to scores.
POSITIONS = {"Rope": "rotary", "LayerRopes": "rotary", "Learned": "added", "Sinusoidal": "added", "NoPosition": "none"}
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
    """Raise unless the model has a vocabulary, as every study on prompts needs, and these parts, the first that it lacks."""
    RMS, plain = RMSNorm | OffsetRMSNorm, architecture.normaliser == Softmax()
    scales = architecture.score_scale if isinstance(architecture.score_scale, tuple) else (architecture.score_scale,)
    usual = architecture.head_dim**-0.5
    there = {
        "vocabulary": architecture.vocab_size is not None,
        "rotary positions": architecture.rope_of(0) is not None,
        "embedding without positions": not isinstance(architecture.position, AddedPosition),
        "plain embedding": not architecture.embed_norm and architecture.embed_width is None,
        "scores without positions": not isinstance(architecture.position, ScorePosition),
        "scores without a kernel": not architecture.normaliser.kernel,
        "scores without a soft cap": architecture.caps.scores is None,
        "position vectors": isinstance(architecture.position, AddedPosition),
        "query biases": architecture.qkv_bias,
        "keys without a LayerNorm": isinstance(getattr(architecture.qk_norm, "norm", architecture.qk_norm), RMS | None),
        "rotation after all norms": not isinstance(architecture.qk_norm, AfterRotation),
        "queries without growth": not any(rope.growth for rope in architecture.ropes),
        "causal mask": architecture.prefix is None,
        "norm": architecture.norm is not None,
        "RMSNorm": isinstance(architecture.norm, RMS),
        "pre-norm": architecture.layout.inputs and not architecture.layout.parallel,  # outputs may be normed too
        "norm before attention": architecture.layout.inputs,
        "MLP": architecture.mlp_width is not None,
        "gated MLP": architecture.gated_mlp,
        "MLP without experts": architecture.experts is None,
        "concatenated heads": not architecture.summed_heads,
        "softmax": plain and isinstance(architecture.kv_bias, ValueBias | None) and architecture.caps.scores is None,
        "sliding windows": any(window is not None for window in architecture.windows or ()),
        "usual scale": all(scale is None or scale == usual for scale in scales),
    }
    detail = {
        "embedding without positions": f" but {architecture.position}",
        "scores without positions": f" but {architecture.position}",
        "scores without a kernel": f" but {architecture.normaliser}",
        "rotation after all norms": f" but {architecture.qk_norm}",
        "queries without growth": f" but {', '.join(str(rope.growth) for rope in architecture.ropes)}",
        "causal mask": f" but a prefix of {architecture.prefix}",
        "pre-norm": f" but {architecture.norm_place}",
        "norm before attention": f" but its place is {architecture.norm_place}",
        "RMSNorm": f" but {architecture.norm}",
        "softmax": f" but {architecture.normaliser}"
        if not plain
        else f" over keys alone but {architecture.kv_bias}"
        if architecture.kv_bias
        else " without a soft cap on scores",
        "usual scale": f" of scores but {', '.join(f'{scale or usual:g}' for scale in scales)}",
    }
    for part in ("vocabulary", *parts):
        if not there[part]:
            raise SinkjaxError(f"{study} cannot run: this model has no {part}{detail.get(part, '')}")


@dataclass(frozen=True, eq=False)
class Premise:
    """A condition that a model must meet for a paper's claim to apply to it, by the paper's own definition.

    Attributes:
        test: Whether it holds, and the number that decides.
        fits: Whether it can hold in an architecture. If not, the claim's controls and twin do not run.
    """

    test: Test
    fits: Callable[[Config], bool] = lambda architecture: True


def all_of(*premises: Premise) -> Premise:
    """Return the premise that several hold; the first one that fails is reported."""

    def test(read: Numbers) -> tuple[bool, str]:
        found = [one.test(read) for one in premises]
        return next((one for one in found if not one[0]), (True, "; ".join(text for _, text in found)))

    return Premise(test, lambda architecture: all(one.fits(architecture) for one in premises))


def reaches(measure: Measure, sweep: Sweep, least: float) -> Premise:
    """Return the premise that a measure's mean over documents, without an edit, is at least a cut-off that a paper states."""
    return Premise(lambda read: _unedited(read, measure, sweep, least, at_least=True))


def below(measure: Measure, sweep: Sweep, most: float) -> Premise:
    """Return the premise that a measure's mean over documents, without an edit, is below a cut-off that a paper states."""
    return Premise(lambda read: _unedited(read, measure, sweep, most, at_least=False))


def _unedited(read: Numbers, measure: Measure, sweep: Sweep, cut: float, at_least: bool) -> tuple[bool, str]:
    mean = float(read.first(measure, sweep).mean())
    holds = mean >= cut if at_least else mean < cut
    return holds, f"{measure.name} is {three_digits(mean)}, and must be {'at least' if at_least else 'below'} {cut:g}"


def exceeds(measure: Measure, sweep: Sweep, other: Measure) -> Premise:
    """Return the premise that a measure's mean without an edit is above another's, such as the strongest other key's."""

    def test(read: Numbers) -> tuple[bool, str]:
        one, another = (float(read.first(of, sweep).mean()) for of in (measure, other))
        text = f"{measure.name} is {three_digits(one)}, and must be above {three_digits(another)}, the {other.name}"
        return one > another, text

    return Premise(test)


def is_sink(measure: Measure, sweep: Sweep, other: Measure) -> Premise:
    """Return the premise that there is a sink to move: on a key that gets more than every other key, and than in the twin.

    Causal attention alone favours the first keys, so the share must exceed the untrained twin's by more than a tenth of itself.

    Args:
        measure: The attention to the key.
        sweep: The sweep whose unedited model is read; its untrained twin is measured for this premise.
        other: The attention to the strongest other key.
    """

    return Premise(lambda read: _sinks(read, measure, sweep, other))


def _sinks(read: Numbers, measure: Measure, sweep: Sweep, other: Measure) -> tuple[bool, str]:
    strongest, text = exceeds(measure, sweep, other).test(read)
    if str(getattr(read.settings, "model", "")).startswith(UNTRAINED):
        return False, "the model is untrained"
    twin = read.untrained(measure, sweep)
    own, least = float(read.first(measure, sweep)[: len(twin)].mean()), float(twin.mean())
    if strongest:
        text += f"; it must be above {three_digits(least)}, the untrained twin's, by more than {SMALL:.0%} of itself"
    return strongest and own - least > SMALL * own, text


def without_bos(sweep: Sweep) -> Premise:
    """Return the premise that the prompts of a sweep have no BOS, so that their first tokens differ."""

    def test(read: Numbers) -> tuple[bool, str]:
        bos = read.about(sweep)["bos"]
        return bos == "none", f"every prompt must begin with a token of its own, but bos is {bos}"

    return Premise(test)


def keys_without_norm() -> Premise:
    """Return the premise that keys have no norm of their own, so that their lengths can differ."""

    def fits(architecture: Config) -> bool:
        return getattr(architecture, "qk_norm", None) is None  # a store omits unstated fields

    why = "keys must have no norm of their own, as one makes them about equally long"
    return Premise(lambda read: (fits(read.architecture), why), fits)


def positions_are(*kinds: str) -> Premise:
    """Return the premise that positions are "rotary", "added" (to the embedding), "scores" (added to these) or "none"."""

    def test(read: Numbers) -> tuple[bool, str]:
        found = kind_of_positions(read.architecture)
        return found in kinds, f"positions are {found}, and must be {' or '.join(kinds)}"

    return Premise(test, lambda architecture: kind_of_positions(architecture) in kinds)


def same(measure: Measure, one: Where, other: Where, within: float) -> Test:
    """Return the identity that a measure is the same under two choices of conditions, up to rounding.

    within: the largest difference that rounding explains, in the unit of the measure.
    """

    def test(read: Numbers) -> tuple[bool, str]:
        apart = float(np.abs(read.edited(measure, one) - read.edited(measure, other)).max())
        return apart <= within, f"largest difference in {measure.name}: {apart:.2g}"

    return test


def unchanged(measure: Measure, where: Where, within: float) -> Test:
    """Return the identity that an edit leaves a measure unchanged, up to rounding.

    within: the largest difference that rounding explains, in the unit of the measure (for a size, of its logarithm).
    """

    def test(read: Numbers) -> tuple[bool, str]:
        apart = float(np.abs(read.edited(measure, where) - read.unedited(measure, where)).max())
        return apart <= within, f"largest change of {measure.name}: {apart:.2g}"

    return test
