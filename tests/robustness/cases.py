"""Wrong input by command line and from Python, and the sentence that each must give: `cli_cases.txt` and `api_cases.txt`.

`test_cases.py` tries all of them.

In the arguments of a command stand $model, $text, $files, $folders and $models (`broken.py`), $dir, an empty folder that is the
working directory, and $small, which makes kiya/mask small. An expression is evaluated with the names of `names`.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import string
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sinkjax.errors import SinkjaxError

KINDS = ("cli", "api")
PATIENCE = 60.0  # seconds of processor time: a quadratic parser or a run that began, not a slow machine
PROGRESS = ("platform", "loading", "text:", "training a tokenizer", "sweep:", "controls:")


@dataclass(frozen=True)
class Case:
    """What is given, and a part of the one sentence that it must give."""

    given: str
    says: str


@dataclass(frozen=True)
class Outcome:
    """What a case came to. kind: "refused" by SinkjaxError, "accepted", or the name of another exception. said: its message."""

    kind: str
    said: str
    seconds: float

    def wrong(self, case: Case) -> str:
        """Why this is not what the case must give; "" if it is."""
        if self.kind != "refused":
            return f"{self.kind}: {self.said[:200]}"
        if "\n" in self.said or case.says not in self.said:
            return f"other words: {self.said[:300]}"
        return f"{self.seconds:.1f} s of processor time" if self.seconds > PATIENCE else ""


def cases(kind: str) -> list[Case]:
    """All cases of a kind, in their order."""
    lines = Path(__file__).with_name(f"{kind}_cases.txt").read_text(encoding="utf-8").splitlines()
    return [Case(*line.split(" => ", 1)) for line in lines if not line.startswith("#")]


def command(case: Case, home: Path) -> Outcome:
    """Give the arguments of a case to the command line, in this process and in a folder of its own."""
    from sinkjax.cli.main import main

    shown, errors, begun = io.StringIO(), io.StringIO(), time.process_time()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        arguments = shlex.split(string.Template(case.given).substitute(_places(case, home, folder)))
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(errors):
                code = main(arguments)
        except BaseException as error:
            return Outcome(type(error).__name__, str(error), time.process_time() - begun)
        seconds = time.process_time() - begun
        lines = [line for line in errors.getvalue().splitlines() if line and not line.startswith(PROGRESS)]
        return Outcome("refused" if code == 2 else "accepted", "\n".join(lines), seconds)


def _places(case: Case, home: Path, folder: str) -> dict[str, str]:
    small = f"--model {home / 'model'} --text {home / 'text.txt'}"
    if "kiya/mask" in case.given:
        small += " --prompts 3 --length 12 --controls 4 --control-prompts 2 --map-layers 0 2"
    paths = {name: str(home / name) for name in ("files", "folders", "models", "model")}
    return {
        **paths,
        "text": str(home / "text.txt"),
        "dir": folder,
        "small": small if case.given.startswith(("run", "plan")) else "",
    }


def names(home: Path) -> dict[str, Any]:
    """What expressions are made of."""
    import jax.numpy as jnp
    import numpy as np

    import sinkjax
    from sinkjax.analysis import intervals, metrics
    from sinkjax.config_files import documents
    from sinkjax.data.corpora import passages
    from sinkjax.edits.edit_list import read_edits
    from sinkjax.explorer.state import read_state
    from sinkjax.model import params
    from sinkjax.model.config import Config, RMSNorm
    from sinkjax.model.rotary import Rope
    from sinkjax.study.registry import choose, config_type, find
    from sinkjax.study.run import run
    from sinkjax.tasks import load_runs, train
    from sinkjax.tasks.backcopy.config import BackcopyTraining
    from sinkjax.tasks.language_model.config import Finetune, Pretrain
    from sinkjax.tasks.trigger.config import CappedTraining, TriggerTraining

    model = sinkjax.load(home / "model")
    tokens = np.arange(24, dtype=np.int32).reshape(2, 12)
    sizes = {"layers": 3, "width": 32, "heads": 6, "kv_heads": 2, "head_dim": 8, "mlp_width": 48, "vocab_size": 61, "context": 64}
    rest = {"norm": RMSNorm(1e-5), "position": Rope(1e4), "activation": "silu", "tied": False}
    trainings = (BackcopyTraining, CappedTraining, Finetune, Pretrain, TriggerTraining)
    library = (params, metrics, intervals, Rope, RMSNorm, *trainings, run, train, load_runs, passages, read_edits, read_state)
    return {
        **{entry.__name__.rpartition(".")[2]: entry for entry in library},
        "Mask": find("kiya/mask").settings,
        "find": find,
        "settings": lambda name, **wrong: documents.build(
            config_type((chosen := choose(name)).experiment), {**documents.fields(chosen.config), **wrong}, name
        ),
        "sinkjax": sinkjax,
        "np": np,
        "jnp": jnp,
        **{name: home / name for name in ("files", "folders", "models")},
        "folder": home / "model",
        "text": home / "text.txt",
        "model": model,
        "bare": sinkjax.Model(model.config, model.params, None, model.source),
        "tokens": tokens,
        "mask": sinkjax.mask_key(0),
        "forward": lambda *edits: sinkjax.forward(model.params, tokens, model.config, edits),
        "config": lambda **fields: Config(**{**sizes, **rest, **fields}),
        "record": sinkjax.forward(model.params, tokens, model.config).record,
    }


def expression(case: Case, known: dict[str, Any]) -> Outcome:
    """Evaluate the expression of a case, in a folder of its own."""
    begun = time.process_time()
    kind, said = "accepted", ""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stderr(io.StringIO()):
        try:
            said = repr(eval(case.given, {**known, "dir": Path(folder)}))
        except SinkjaxError as error:
            kind, said = "refused", str(error)
        except BaseException as error:
            kind, said = type(error).__name__, str(error)
    return Outcome(kind, said, time.process_time() - begun)
