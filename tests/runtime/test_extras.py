"""The base installation loads, runs, sweeps and measures; what needs more names the extra that brings it, before any work."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sinkjax.errors import SinkjaxError
from sinkjax.runtime import extras

ROOT = Path(__file__).parents[2]
TABLE = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NAMED_OTHERWISE = {"universal.pathlib": "upath", "lm.eval": "lm_eval"}  # packages whose module has another name
ROOTS = sorted({module.partition(".")[0] for modules in extras.EXTRAS.values() for module in modules} - {"huggingface_hub"})

HIDE = f"""
import sys

for name in {ROOTS}:  # huggingface_hub stays: tokenizers needs it
    sys.modules[name] = None
"""
BASE = """
import sinkjax
from sinkjax.cli import main
from sinkjax.data.corpora import passages

model = sinkjax.load("mini-softmax")
text = passages("auto", 2, length=8, size=lambda text: len(model.tokenizer.encode(text)))
print(text.source)
tokens, lengths = sinkjax.encode(model, text.texts, bos="model", length=8)
probe = sinkjax.Probe(attention_received=True, nll=True)
out = sinkjax.forward(model.params, tokens, model.config, sinkjax.mask_key(0), probe, lengths)
data = sinkjax.sweep(model, tokens, [sinkjax.mask_key(0), sinkjax.mask_key(1)], probe=probe, lengths=lengths, out="a.zarr")
print(sinkjax.metrics.sink_rate(out.record, 0), sinkjax.to_frame(data, "sink_rate", key=0).shape)
sinkjax.save(model, "saved")
sinkjax.load("saved")
for command in (["plan", "kiya/mask", "--model", "mini-softmax", "--bos", "model"], ["models"], ["sites", "mini-softmax"]):
    assert main.main(command) == 0, command
for command in ("run kiya/mask --model mini-softmax --bos model", "train pretrain/baseline --text packaged"):
    assert main.main([*command.split(), "--out", "results"]) == 2, command
"""


def needs(extra: str) -> str:
    return re.escape(f"pip install 'sinkjax[{extra}]'")


def test_each_extra_brings_what_the_table_says_and_the_base_none_of_it():
    def packages(requirements: list[str]) -> set[str]:
        names = {re.split(r"[\[>=;]", requirement)[0].replace("-", ".").lower() for requirement in requirements}
        return {NAMED_OTHERWISE.get(name, name) for name in names}

    optional = TABLE["optional-dependencies"]
    for extra, modules in extras.EXTRAS.items():
        assert packages(optional[extra]) == {module.lower() for module in modules}
        assert not packages(TABLE["dependencies"]) & packages(optional[extra])
    assert optional["all"] == [f"sinkjax[{','.join(sorted(extras.EXTRAS))}]"]


def test_without_the_extras_everything_up_to_a_sweep_runs_and_the_rest_names_what_it_needs(tmp_path):
    done = subprocess.run([sys.executable, "-c", HIDE + BASE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.search(r"WikiText-2 needs datasets, .*pip install 'sinkjax\[train\]'", done.stdout)
    assert "needs jinja2, matplotlib, " in done.stderr
    assert "training needs optax, orbax.checkpoint, datasets" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"a.zarr", "saved"}  # what was refused has left nothing


@pytest.mark.parametrize(
    ("name", "argument", "module", "extra"),
    [
        ("config_files.locations.location", "s3://bucket/x.zarr", "upath", "remote"),
        ("plot.lines", [], "matplotlib", "report"),
        ("cli.verbs.carry_out", ["card", "mini-softmax"], "matplotlib", "report"),
        ("cli.verbs.carry_out", ["picture", "mini-softmax", "a text"], "matplotlib", "report"),
        ("cli.verbs.carry_out", ["evaluate", "mini-softmax", "--tasks", "arc_easy"], "lm_eval", "eval"),
        ("checkpoints.hub.find_snapshot", "owner/name", "huggingface_hub", "hub"),
        ("checkpoints.in_memory.from_transformers", None, "transformers", "hub"),
    ],
)
def test_what_needs_an_extra_says_so_in_one_sentence(name, argument, module, extra, monkeypatch, tmp_path):
    act = pkgutil.resolve_name(f"sinkjax.{name}")
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("sinkjax.load", lambda *args, **options: pytest.fail("computed before it was refused"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SinkjaxError, match=rf"needs {module}, .*: {needs(extra)}"):
        act(argument, "x") if name == "plot.lines" else act(argument)
