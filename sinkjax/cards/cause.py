"""The cause of a sink: the position, the token, a key without a token, or nothing; each checked by an intervention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sinkjax.analysis.intervals import generator
from sinkjax.cards.ground import EPS, FEW, HALF, Ground
from sinkjax.cards.where import SinkPlaces
from sinkjax.errors import SinkjaxError
from sinkjax.explain.scan import scan

Kind = Literal["any token that sees only itself", "position", "tokens", "a key without a token", "nothing", "none of these"]
WHY: dict[Kind, str] = {  # as the card says it
    "any token that sees only itself": "no particular token: whatever token is first becomes the sink, and so does a later one "
    "that is made to see only itself",
    "position": "the position: whatever token stands there becomes the sink, and no token does elsewhere",
    "tokens": "the token: {token}",
    "a key without a token": "no token: attention goes to a bias or a sink logit instead",
    "nothing": "nothing, because no head sinks",
    "none of these": "unknown: the numbers below fit none of the causes that a card tells apart",
}
SAMPLE = 1_000  # tokens of a scan
ALL_NAMED = 40  # tokens that are all named
STRENGTHS = ("unedited", "no_bos", "masked", "isolated", "moved")


@dataclass(frozen=True)
class Cause:
    """The cause of the sink, with the numbers that decide it. Strengths are attention, averaged over the heads that sink.

    Attributes:
        kind: The class; "none of these" if the numbers fit no class.
        unedited: Strength at the sink's position.
        no_bos: Strength without a BOS: at position 0 of the same text, or, if the prompts have no BOS and their tokens at the
            sink's position differ, at that position; None if neither can be measured.
        masked: Strength at the next position when the sink's key is hidden from all later queries.
        isolated: Strength of an ordinary token that sees only itself, at a third of the prompt, with the sink's key hidden from
            later queries.
        moved: Strength of the model's BOS, put at the same position with key 0 hidden from later queries; None if the model has
            no BOS.
        qualifies: Share of the scanned vocabulary whose key, run alone, gets at least half of the excess of the sink key's score
            over an ordinary key's; None if the model cannot be scanned.
        scanned: Number of scanned tokens.
        tried: Number of qualifying tokens that were put into texts, at a third of the prompt, one in each prompt.
        tokens: [id, text] of the tokens that became sinks in these texts, with at least half of the unedited strength.
        exceptions: [id, text] of the scanned tokens that do not qualify, if they are few.
        best: [id, text] of the scanned token with the highest score, whose keys and values make the sink prefix; None if the
            model cannot be scanned.
    """

    kind: Kind
    unedited: dict[str, Any]
    no_bos: dict[str, Any] | None
    masked: dict[str, Any] | None
    isolated: dict[str, Any] | None
    moved: dict[str, Any] | None
    qualifies: float | None
    scanned: int
    tried: int
    tokens: list[tuple[int, str]]
    exceptions: list[tuple[int, str]]
    best: tuple[int, str] | None = None

    def sentence(self) -> str:
        """Describe the cause in one line."""
        names = [repr(text) for _, text in self.tokens] or ["the BOS"]
        few = ", ".join(names[:5]) + ", ..." * (len(names) > 5)
        token = f"only {few} becomes the sink, wherever it stands"
        if len(names) > 1:
            token = f"of {self.tried} tokens that a scan found likely, {len(names)} become the sink wherever they stand ({few})"
        return WHY[self.kind].format(token=token)


def cause_of(ground: Ground, places: SinkPlaces, sample: int = SAMPLE) -> Cause:
    """Intervene on position and token, and scan tokens alone.

    Args:
        ground: The prompts.
        places: Where the sinks are.
        sample: Number of scanned tokens, the special ones included.

    Returns:
        The class and its numbers.
    """
    key, bare, at = ground.key, ground.own.bare, max(2, ground.own.tokens.shape[1] // 3)
    unedited = ground.strength(ground.own.numbers, key)
    if not places.sinks:
        kind: Kind = "a key without a token" if (places.no_key["mean"] or 0.0) > EPS else "nothing"
        return Cause(kind, ground.own.number(unedited), None, None, None, None, None, 0, 0, [], [])
    strengths = {
        "unedited": unedited,
        "masked": ground.strength(ground.hidden, key + 1),
        "isolated": ground.strength(ground.edited(ground.own.tokens[FEW], isolated=at, hidden=key, behind=at), at),
    }
    if ground.policy == "model":
        strengths["no_bos"] = ground.strength(ground.bare, 0)
    elif 2 * len(np.unique(ground.own.tokens[:, key])) > len(unedited):
        strengths["no_bos"] = unedited  # whatever token is there
    if ground.policy is not None and ground.bos is not None:
        strengths["moved"] = _put(ground, at, bare[FEW], ground.bos)
    ids, margin = _scanned(ground, sample)
    yes = margin >= HALF
    share = float(yes.mean()) if len(ids) else None
    kind = _kind({name: float(np.nanmean(values[FEW])) for name, values in strengths.items()}, share)
    ordered = ids[np.argsort(-margin, kind="stable")]
    likely = ordered[: min(int(yes.sum()), len(bare)) if kind == "tokens" else 0]
    if kind == "tokens" and not len(likely) and len(there := np.unique(ground.own.tokens[:, key])) == 1:
        likely = there  # there was no scan, so the token that is there
    sinking = likely
    if len(likely):  # each is put into a prompt of its own
        sinking = likely[_put(ground, at, bare[: len(likely)], likely) >= HALF * np.nanmean(unedited)]
    numbers: dict[str, Any] = dict.fromkeys(STRENGTHS)
    numbers |= {name: ground.own.number(values) for name, values in strengths.items()}
    return Cause(
        kind=kind,
        **numbers,
        qualifies=share,
        scanned=len(ids),
        tried=len(likely),
        tokens=_named(ground, sinking),
        exceptions=_named(ground, ids[~yes] if (~yes).sum() <= ALL_NAMED else ids[:0]),
        best=next(iter(_named(ground, ordered[:1])), None),
    )


def _kind(means: Mapping[str, float], share: float | None) -> Kind:
    """Classify a sink by the mean strengths of `Cause` and the share of the vocabulary that qualifies."""
    there = {name: mean >= HALF * means["unedited"] for name, mean in means.items()}
    first = there.get("no_bos", there["masked"])  # whatever token is first
    if there["isolated"]:
        return "any token that sees only itself" if first else "none of these"
    if first:
        return "none of these" if there.get("moved") else "position"
    return "tokens" if there.get("moved", True) and (share is None or share < HALF) else "none of these"


def _put(ground: Ground, at: int, prompts: NDArray[Any], tokens: Any) -> NDArray[np.float64]:
    """Return the strength of a token (or one for each prompt) put into texts, with key 0 hidden from later queries: [prompt]."""
    prompts = prompts.copy()
    prompts[:, at] = tokens
    return ground.strength(ground.edited(prompts, hidden=0, behind=at), at)


def _scanned(ground: Ground, sample: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scan the BOS, the prompts' own first token, and random ones.

    Return their ids, and the score of each one's key alone, from 0 (an ordinary key's) to 1 (the first token's).
    """
    every = np.arange(ground.model.config.vocab_size or 0)
    special = {int(ground.own.tokens[0, ground.key]), *([] if ground.bos is None else [ground.bos])}
    if len(every) > sample:
        rest = np.setdiff1d(every, list(special))
        every = np.sort([*special, *generator(0, "tokens of a card").choice(rest, sample - len(special), replace=False)])
    try:  # the text reads the first token's sink
        data = scan(ground.model, every, ground.own.tokens[FEW, ground.key :])
    except SinkjaxError:  # such as a model without scores of keys
        return np.zeros(0, int), np.zeros(0)
    margin = (data["score"] - data["other_score"]) / (data["first_score"] - data["other_score"])
    count = len(every) if data.sizes["sink"] else 0
    return every[:count], np.asarray(margin.mean("sink").values[:count])


def _named(ground: Ground, ids: NDArray[Any]) -> list[tuple[int, str]]:
    return [(int(token), ground.text_of(int(token))) for token in ids]
