"""The displayed state as one frozen record: JSON conversion, and its edit. This module does not import JAX."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from sinkjax.checkpoints.tokenizer import without_repeats
from sinkjax.config_files import documents
from sinkjax.config_files.checks import at_least, refuse
from sinkjax.errors import SinkjaxError, one_of

if TYPE_CHECKING:
    from sinkjax.edits.edit import Edit

# Constructor -> its arguments, each with the field of the state that sets it.
KINDS: dict[str, dict[str, str]] = {
    "mask_key": {"key": "token", "layers": "layers", "heads": "heads"},
    "attend_self": {"position": "token", "layers": "layers", "heads": "heads"},
    "add_logit": {"key": "token", "value": "value", "layers": "layers", "heads": "heads"},
    "swap_embeddings": {"i": "token", "j": "other"},
    "scale_head_output": {"position": "token", "factor": "value", "layers": "layers", "heads": "heads"},
    "set_residual": {"position": "token", "value": "value", "dims": "dim", "layers": "layers"},
    "drop_mlp": {"position": "token", "layers": "layers"},
    "edit_weights": {"name": "matrix", "op": "op", "value": "value", "layers": "layers", "rows": "row", "cols": "col"},
}
LARGEST_VALUE = 1e6  # slider limit; far beyond any activation
HEADING = re.compile("= .* =")  # a line that text files interpret as a title


@dataclass(frozen=True, kw_only=True)
class State:
    """The displayed state.

    Attributes:
        prompt: One paragraph, as a line of a sweep's text file.
        bos: Token before it, as for `sinkjax.encode`.
        kind: The edit: a name in KINDS, or "none".
        token: The edited position, from 0, counting the BOS.
        other: The position to swap it with.
        value: The number to add, set, or multiply by.
        dim: The dim of the residual stream that is set.
        matrix: The matrix whose entries are scaled.
        row: The row of these entries; None for all.
        col: Their column; None for all.
        layers: The first and the last layer edited; None for all.
        heads: The heads edited; None for all.
        layer: The layer whose attention map is shown.
        head: Its head; None for the mean over heads.
        key: The key whose sink rate is shown.

    Raises:
        SinkjaxError: A field has the wrong type, is negative or not finite; the prompt is empty or not a single line; the layers
            are out of order; no head is chosen, or one is chosen twice.
    """

    prompt: str
    bos: Literal["model", "none"] = "none"
    kind: str = "none"
    token: int = 0
    other: int = 1
    value: float = 0.0
    dim: int = 0
    matrix: str = "o"
    row: int | None = None
    col: int | None = 0
    layers: tuple[int, int] | None = None
    heads: tuple[int, ...] | None = None
    layer: int = 0
    head: int | None = None
    key: int = 0
    op: ClassVar[str] = "scale"  # the operation of a weight edit

    def __post_init__(self) -> None:
        documents.typed(self)
        one_of("kind", self.kind, ("none", *KINDS))
        at_least(self, token=0, other=0, dim=0, row=0, col=0, layer=0, head=0, key=0)
        half = next((number for number, one in enumerate(self.prompt) if "\ud800" <= one <= "\udfff"), None)
        refuse(half is not None, f"the prompt holds half a character at position {half}")
        paragraph = " ".join(self.prompt.splitlines()).strip()
        refuse(not paragraph, "the prompt is empty")
        refuse(paragraph != self.prompt, "the prompt must be one line, without spaces at its ends")
        refuse(bool(HEADING.fullmatch(self.prompt)), "the prompt has the form of a heading, = ... =, which texts leave out")
        refuse(not abs(self.value) <= LARGEST_VALUE, f"value must lie within {LARGEST_VALUE:g} of 0, not {self.value}")
        if self.layers is not None:
            first, last = self.layers
            refuse(not 0 <= first <= last, f"layers must be the first and the last one, from 0, not {first} and {last}")
        if self.heads is not None:
            refuse(not self.heads, "no head is chosen: tick at least one")
            refuse(min(self.heads) < 0 or len({*self.heads}) < len(self.heads), "heads must name each head once, from 0")


def read_state(text: str | bytes) -> State:
    """Read a state from a JSON object. Errors: invalid JSON; an unknown, missing or duplicate key; an invalid value."""
    try:
        values = json.loads(text, object_pairs_hook=without_repeats)
    except (ValueError, RecursionError) as error:
        raise SinkjaxError(f"the state is not valid JSON: {error}") from None
    refuse(not isinstance(values, dict), "the state must be a JSON object")
    return documents.build(State, values, "the state")


def write_state(state: State) -> str:
    """Write the state as a JSON object with every field."""
    return json.dumps(documents.plain(documents.fields(state)), ensure_ascii=False)


def arguments(state: State) -> dict[str, Any]:
    """Return the arguments of the edit's constructor, omitting defaults; {} for no edit.

    Several layers become a slice, a single one an int; heads become a list.
    """
    values = {name: getattr(state, field) for name, field in KINDS.get(state.kind, {}).items()}
    if values.get("layers") is not None:
        first, last = values["layers"]
        values["layers"] = first if first == last else slice(first, last + 1)
    if values.get("heads") is not None:
        values["heads"] = list(values["heads"])
    return {name: value for name, value in values.items() if value is not None}


def edits_of(state: State) -> tuple[Edit, ...]:
    """Return the edit as a tuple, empty for none. Errors: the constructor rejects a value."""
    from sinkjax.edits import named

    return () if state.kind == "none" else (getattr(named, state.kind)(**arguments(state)),)
