"""`show`: interactive maps of a prompt before and after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sinkjax.data.prompts import encode, resolved_bos
from sinkjax.edits.edit import Edit, compose
from sinkjax.probes.probe import Probe
from sinkjax.runtime.settings import fixed_settings
from sinkjax.transformer.forward import forward
from sinkjax.viewing.maps import Maps
from sinkjax.viewing.records import maps_of

if TYPE_CHECKING:
    from sinkjax.checkpoints.model import Model


@fixed_settings
def show(
    model: Model,
    prompt: str,
    edits: Edit | Sequence[Edit] = (),
    *,
    bos: str | int = "auto",
    layers: Sequence[int] | None = None,
    length: int = 32,
) -> Maps:
    """Show a prompt before and after an edit: attention and the largest activations, token by token.

        sinkjax.show(model, "They sent for Ness at half past two.", sinkjax.mask_key(0))

    A notebook displays the result if it is a cell's last expression, and saves it. Viewing it requires neither Python nor a
    network.

    Args:
        model: A model from `load`.
        prompt: The text.
        edits: An edit, or several to apply together; if there is none, only the unedited model is shown.
        bos: Token before the text, as for `encode`.
        layers: Layers whose attention is shown; None for all.
        length: Maximum number of tokens to show, including the BOS; a longer text is cut.

    Returns:
        The maps; `.html()` returns a standalone page.

    Raises:
        SinkjaxError: Any error of `encode` or `forward`; there are too many maps for a notebook (choose `layers`).
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
    assert model.tokenizer  # `encode` raises for a model without a tokenizer
    texts = model.tokenizer.tokens(tokens[0].tolist())
    caption = f"{model.source['name']}, {model.source['dtype']}, BOS: {resolved_bos(model, bos)}"
    return maps_of(records, texts, said=caption, layers=layers)
