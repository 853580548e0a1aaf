"""A small bar for one claim: its number with the interval, next to its controls and the untrained twin, as inline SVG."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from sinkjax.analysis.verdicts import said

if TYPE_CHECKING:
    from sinkjax.analysis.intervals import Interval
    from sinkjax.analysis.verdicts import Verdict

WIDTH, HEIGHT, MARGIN = 180, 26, 6  # pixels
CLIP = (-1.0, 2.0)  # shares of the whole beyond these are drawn as arrows
MARKS = (-0.1, 0.0, 0.1, 1.0)  # shares: nothing, the lines of the rule on both of its sides, and the whole


def bar(one: Verdict) -> str:
    """The bar of a claim.

    Args:
        one: The claim as it was judged.

    Returns:
        An SVG element; "" where nothing was measured.
    """
    share = one.share
    value = one.judgement.S if share else one.judgement.D
    if value is None or value.mean is None:
        return ""
    band = _controls(one)
    twin = None if one.twin is None else one.twin.S if share else one.twin.D
    shown = [end for end in (value.low, value.mean, value.high, None if twin is None else twin.mean, *band) if end is not None]
    low, high = min(0.0, *shown), max(0.0, *shown)
    if share:
        low, high = max(CLIP[0], min(low, -0.15)), min(CLIP[1], max(high, 1.05))
    scale = (WIDTH - 2 * MARGIN) / ((high - low) or 1.0)

    def x(number: float) -> str:
        return f"{MARGIN + (min(max(number, low), high) - low) * scale:.1f}"

    middle = HEIGHT / 2
    marks = MARKS if share else (0.0,)
    parts = [
        f'<line class="{"zero" if at == 0 else "mark"}" x1="{x(at)}" x2="{x(at)}" y1="1" y2="{HEIGHT - 1}"/>' for at in marks
    ]
    if band:
        wide = max(float(x(band[1])) - float(x(band[0])), 2.0)
        parts.append(f'<rect class="controls" x="{x(band[0])}" y="4" width="{wide:.1f}" height="{HEIGHT - 8}"/>')
    if value.low is not None and value.high is not None:
        parts.append(f'<line class="interval" x1="{x(value.low)}" x2="{x(value.high)}" y1="{middle}" y2="{middle}"/>')
    if twin is not None and twin.mean is not None:
        parts.append(f'<circle class="twin" cx="{x(twin.mean)}" cy="{middle}" r="3.5"/>')
    parts.append(f'<circle class="mean" cx="{x(value.mean)}" cy="{middle}" r="3.5"/>')
    parts += [_arrow(low, high, scale, value)] if share else []
    return (
        f'<svg class="bar" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
        f"<title>{escape(_title(one, bool(band), twin))}</title>{''.join(parts)}</svg>"
    )


def _controls(one: Verdict) -> tuple[float, ...]:
    """Return the lowest and the highest control on the bar's scale; empty without controls."""
    rank, whole = one.judgement.rank, one.judgement.W
    if rank is None or rank.spread is None:
        return ()
    unit = whole.mean if one.share and whole is not None and whole.mean else 1.0
    return tuple(end / unit for end in rank.spread)


def _arrow(low: float, high: float, scale: float, value: Interval) -> str:
    """Draw arrows where the interval extends beyond the bar."""
    middle, parts = HEIGHT / 2, []
    for beyond, at, tip in (
        (value.high is not None and value.high > high, MARGIN + (high - low) * scale, 5),
        (value.low is not None and value.low < low, float(MARGIN), -5),
    ):
        if beyond:
            points = f"{at:.1f},{middle - 4} {at + tip:.1f},{middle} {at:.1f},{middle + 4}"
            parts.append(f'<polygon class="arrow" points="{points}"/>')
    return "".join(parts)


def _title(one: Verdict, controls: bool, twin: Interval | None) -> str:
    parts = [f"{one.number}", "grey: the range of its controls" * controls]
    if twin is not None and twin.mean is not None:
        parts.append(f"ring: untrained twin, {said(twin, 'share' if one.share else one.unit)}")
    return "; ".join(filter(None, parts))
