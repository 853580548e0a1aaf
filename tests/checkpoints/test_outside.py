"""A family that another package registers: imported only for its own model type, and never in place of a family of sinkjax."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import sinkjax
from sinkjax.checkpoints.family import family_of, registered
from sinkjax.data.prompts import resolved_bos
from sinkjax.errors import SinkjaxError
from sinkjax.report.models import show_model, show_models
from tests.model import families as small

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "own-model.md"
SHOWN = PAGE.read_text(encoding="utf-8").split("## Add a family")[1]
CODE = re.search(r"```python\n(.*?)```", SHOWN, re.S)[1]
POINTS = re.search(r'\[project\.entry-points\."sinkjax\.families"\]\n(.*?)```', SHOWN, re.S)[1].replace(
    '"', ""
)  # as pip writes them
TOKENS = np.array([[3, 1, 4, 1, 5]])
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install packages as pip does: a module, and a folder of metadata beside it."""
    site = tmp_path / "site"
    monkeypatch.syspath_prepend(site)

    def add(code: str = CODE, points: str = POINTS, package: str = "sinkjax-my-llama") -> None:
        info = site / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[sinkjax.families]\n{points}")
        (site / "sinkjax_my_llama.py").write_text(code)
        for cached in (registered, family_of):
            cached.cache_clear()

    yield add
    monkeypatch.undo()
    sys.modules.pop("sinkjax_my_llama", None)
    for cached in (registered, family_of):
        cached.cache_clear()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Llama, and the same one in the format of the page."""
    llama, mine = tmp_path_factory.mktemp("llama"), tmp_path_factory.mktemp("mine")
    values = small.common(small.Turn(1)) | {"attention_bias": False, "mlp_bias": False}
    small.write_random(small.hf.LlamaConfig(**values), 1, llama)
    stated = small.stated(llama)
    new = {"model_type": "my_llama", "ffn_hidden_size": stated.pop("intermediate_size")}
    (mine / "config.json").write_text(json.dumps(stated | new))
    kinds = {"mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2"}
    renamed = load_file(llama / "model.safetensors")
    for old, other in kinds.items():
        renamed = {name.replace(old, other): array for name, array in renamed.items()}
    save_file(renamed, mine / "model.safetensors")
    return llama, mine


def test_the_family_of_the_page_loads_its_models_and_is_named(install: Install, folders: tuple[Path, Path], capsys) -> None:
    mine = folders[1]
    with pytest.raises(SinkjaxError, match="unknown model_type 'my_llama'"):
        sinkjax.load(mine)
    install()
    with jax.enable_x64(True):
        want, model = (sinkjax.load(folder, dtype="float64") for folder in folders)
        jax.tree.map(np.testing.assert_array_equal, model.params, want.params)
        logits = [np.asarray(sinkjax.forward(each, TOKENS).logits) for each in (model, want)]
        again = sinkjax.from_arrays(model.config, sinkjax.to_arrays(model), family="my_llama", dtype="float64")
        jax.tree.map(np.testing.assert_array_equal, again.params, want.params)
        stored = sinkjax.to_arrays(model)
    np.testing.assert_array_equal(*logits)
    assert model.source["family_from"] == "sinkjax-my-llama 1.0"
    assert "family_from" not in want.source
    assert load_file(mine / "model.safetensors").keys() == stored.keys()
    show_model(str(mine))
    show_models()
    shown = capsys.readouterr().out
    assert re.search(r"family from +sinkjax-my-llama 1\.0", shown)
    assert "my_llama (of sinkjax-my-llama 1.0)" in " ".join(shown.split())


def test_code_of_a_package_runs_only_for_its_own_model_type(install: Install, folders: tuple[Path, Path]) -> None:
    """Not for a family of sinkjax that it registers too, not for a listing, and not for a model in sinkjax's own format."""
    points = "my_llama = sinkjax_my_llama:FAMILY\nllama = sinkjax_my_llama:FAMILY\nsinkjax = sinkjax_my_llama:FAMILY\n"
    install("raise OSError('no such disk')", points)
    model = sinkjax.load(folders[0])
    assert model.source["model_type"] == "llama"
    show_models()
    own = sinkjax.load("mini-softmax")
    assert resolved_bos(own, "auto") is not None
    assert "sinkjax_my_llama" not in sys.modules
    with pytest.raises(SinkjaxError, match=r"'my_llama' of sinkjax-my-llama 1\.0 cannot be imported: OSError: .*no such disk"):
        sinkjax.load(folders[1])


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("FAMILY = 3", "must be a .*Family with this model_type, but sinkjax_my_llama:FAMILY is 3"),
        (CODE.replace('"my_llama"', '"your_llama"'), "must be a .*Family with this model_type"),
        ("", "cannot be imported: AttributeError"),
        (CODE.replace("ffn_hidden_size", "ffn_hidden"), "does not state 'ffn_hidden'"),
        (CODE.replace("w3", "w4"), r"no tensor .*feed_forward\.w4"),
    ],
    ids=["no family", "another type", "no such name", "a key", "a tensor"],
)
def test_a_faulty_family_is_refused_in_one_sentence(
    install: Install, folders: tuple[Path, Path], code: str, message: str
) -> None:
    install(code)
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load(folders[1])
    assert "\n" not in str(caught.value)


def test_two_packages_with_one_model_type_are_both_named(install: Install, folders: tuple[Path, Path]) -> None:
    install()
    install(package="another-llama")
    with pytest.raises(SinkjaxError, match=r"(another-llama 1\.0|sinkjax-my-llama 1\.0) and .* registered twice"):
        sinkjax.load(folders[1])


def test_a_family_that_sinkjax_refuses_by_name_may_come_from_outside(
    install: Install, folders: tuple[Path, Path], tmp_path
) -> None:
    values = json.loads((folders[1] / "config.json").read_text()) | {"model_type": "bamba"}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(values))
    (tmp_path / "m" / "model.safetensors").write_bytes((folders[1] / "model.safetensors").read_bytes())
    with pytest.raises(SinkjaxError, match="no attention weights"):
        sinkjax.load(tmp_path / "m")
    install(CODE.replace("my_llama", "bamba"), POINTS.replace("my_llama =", "bamba ="))
    with jax.enable_x64(True):
        assert sinkjax.load(tmp_path / "m", dtype="float64").source["model_type"] == "bamba"
