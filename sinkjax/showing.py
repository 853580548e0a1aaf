"""`show`: a prompt before and after an edit, as maps to step through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinkjax.data.prompts import encode
from sinkjax.edits.edit import Edit, compose
from sinkjax.probes.probe import Probe
from sinkjax.transformer.forward import forward
from sinkjax.viewing.maps import Maps
from sinkjax.viewing.records import maps_of

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


def show(
    model: Model,
    prompt: str,
    edits: Edit | Sequence[Edit] = (),
    *,
    bos: str | int = "model",
    layers: Sequence[int] | None = None,
    length: int = 32,
) -> Maps:
    """A model on a prompt before and after an edit: attention and the largest activations, token by token.

        sinkjax.show(model, "They sent for Ness at half past two.", sinkjax.mask_key(0))

    A notebook draws the result where a cell ends with it, and keeps it when it is saved; it needs neither Python nor a network.

    Args:
        model: What `load` returned.
        prompt: A text.
        edits: One or several, applied together; none: the model as it is, alone.
        bos: What stands before the text, as for `encode`.
        layers: Whose attention is shown; None: all.
        length: Tokens shown, BOS included; a longer text is cut, and a shorter one is shown whole.

    Returns:
        The maps. `.html()` returns a page with nothing else.

    Raises:
        SinkjaxError: See `encode` and `forward`; the maps would be too many for a notebook (choose `layers`).
    """
    tokens, lengths = encode(model, [prompt], bos=bos, length=min(length, model.config.context))
    tokens = tokens[:, : lengths[0]]
    probe = Probe(attention=True if layers is None else tuple(layers), resid_max=True)
    edit = edits if isinstance(edits, Edit) else compose(*edits)
    wanted = {"no edit": compose()} | ({f"with {edit.label}": edit} if edit.terms else {})
    records = {
        name: forward(model.params, tokens, model.config, given, probe, lengths, logits=False).record
        for name, given in wanted.items()
    }
    assert model.tokenizer  # `encode` refuses a model without one
    texts = model.tokenizer.tokens(tokens[0].tolist())
    said = f"{model.source['name']}, {model.source['dtype']}, BOS: {bos}"
    return maps_of(records, texts, said=said, layers=layers)
