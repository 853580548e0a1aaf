"""The implementations of attention that a forward can be given, and what each cannot do."""

from __future__ import annotations

from sinkjax.edits.term import Edits
from sinkjax.errors import SinkjaxError
from sinkjax.model.config import Config
from sinkjax.probes.probe import Probe
from sinkjax.transformer import flash, fused

CANNOT = {"fused": fused.cannot, "pallas": flash.cannot}


def check_implementation(name: str, config: Config, edits: Edits, probe: Probe) -> None:
    """Raise an error that names what attention by this implementation cannot do."""
    for what, asked in CANNOT[name](config, edits, probe).items() if name in CANNOT else ():
        if asked:
            raise SinkjaxError(f'attention_impl "{name}" keeps no scores and weights, so it cannot do {what}; choose "sinkjax"')
