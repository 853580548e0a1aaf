"""The pages of the site that list parts of the code: names, sites, statistics, studies, commands, notebooks.

`docs/conf.py` calls `write_all` when the site is built; nothing that it writes is kept in the repository. Tables that
are kept, so that they can be read there too, are written by `python docs/generate.py`; the site is not built with old ones.
"""

from __future__ import annotations

import ast
import contextlib
import csv
import dataclasses
import inspect
import io
import json
import os
import re
import shutil
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

import sinkjax
from sinkjax import study as vocabulary
from sinkjax.checkpoints.family import families
from sinkjax.checkpoints.gguf import KEYS, SCALING_KEYS
from sinkjax.checkpoints.settings import OnModel
from sinkjax.cli.verbs import VERBS, carry_out, overview
from sinkjax.config_files.files import shipped
from sinkjax.edits import named
from sinkjax.model.site import SITES
from sinkjax.probes.statistics import BUILT_IN
from sinkjax.report.models import SEPARATORS, separators
from sinkjax.study.registry import choose, declared, find
from sinkjax.study.settings import All, AllTrained, OnText, Series, Trains

DOCS = Path(__file__).parent
NOTEBOOKS = DOCS.parent / "colab"
OF_RUNS = (
    "claims_on",
    "drawn_on",
    "judged_on",
    "measures_on",
    "name",
    "needs_model",
    "on",
    "traced_with",
)  # what runs ask a lab, and no study
WIDTH = "84"  # characters of the commands' help

# Heading of the reference -> the names below it. A name that is missing here, or that is no longer public, is an error.
PUBLIC = {
    "Models and prompts": ("load", "verify", "save", "export", "encode", "Model", "Config"),
    "Models in memory": ("from_transformers", "from_flax", "from_arrays", "to_arrays"),
    "The sink card": ("card", "Card", "read_card", "compare_cards", "load_sinks", "sink_mask", "load_clamp"),
    "Forward pass and sweeps": ("forward", "generate", "Generated", "sweep", "sweep_models", "run"),
    "In use": ("evaluate", "retrofit", "Streaming", "H2O", "KeyNorm", "SnapKV"),
    "Edits": ("edit", "compose", "Edit", "Site", "per_prompt"),
    "Named edits": named.__all__,
    "Measurements": ("Probe", "Capture", "Statistic", "Record", "to_dataset", "to_frame", "head_types", "show"),
    "Explanations": (
        "attribute",
        "attribute_edges",
        "patch",
        "path",
        "explain_score",
        "explain_value",
        "explain_logit",
        "logit_lens",
        "gradient_norms",
        "spike_forms",
        "super_weights",
        "scan",
        "sink_prefix",
        "load_prefix",
        "SinkPrefix",
        "draw_attribution",
        "draw_parts",
        "draw_patch",
    ),
    "With a mouse": ("explore",),
    "Errors": ("SinkjaxError",),
}
# The classes that `sinkjax.Card` is made of, documented on its page, because card.json has their fields
PARTS = (
    "sinkjax.cards.where.SinkPlaces",
    "sinkjax.cards.where.Activation",
    "sinkjax.cards.cause.Cause",
    "sinkjax.cards.maker.Maker",
    "sinkjax.cards.purpose.Purpose",
    "sinkjax.cards.cost.Cost",
    "sinkjax.cards.cost.CostRow",
    "sinkjax.model.fingerprint.ModelIdentity",
)
CARD_JSON = """## The fields of card.json

`card.json` has the fields of `sinkjax.Card`, each part as an object with the fields below. A number with an interval is an
object of `mean`, `low` and `high` (95%; null for a single prompt) and `n`, the number of prompts. `cause` is named
`hangs` there; `maker` is a sentence if there is no activation to explain, `purpose` is null without a sink, and `prefix` has the
token ids of `prefix.safetensors`. Three fields are added: `advice`, a list of sentences; `version`, which names this schema
and changes when a field does; and `checksum`, which covers all other fields."""
MODULES = {
    "metrics": "Metrics of a record",
    "intervals": "Intervals",
    "plot": "Figures for notebooks",
}
PAPERS = {
    "kiya": "Kiya et al. 2026",
    "gu": "Gu et al. 2025",
    "li": "Li et al. 2026",
    "background": "Background: Sun et al. 2024, Xiao et al. 2024 and others",
    "trigger": "The trigger task: Ran-Milo 2026",
    "pretrain": "Pretraining: Gu et al. 2025 and others",
    "emergence": "Checkpoints of a training",
    "ours": "Our own questions",
    "sweep": "Your own sweeps",
}


def write_all(folder: Path) -> None:
    """Write every generated page into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    pages = {"studies": studies(), "commands": commands(), "gallery": gallery(), **api()}
    for name, page in pages.items():
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        shutil.copy(notebook, folder / notebook.name)
    for path, text in kept_tables().items():
        if path.read_text(encoding="utf-8") != text:
            raise ValueError(f"the table of {path.name} differs from the code: run python docs/generate.py")


def kept_tables() -> dict[Path, str]:
    """The pages of the repository with a table made from the code, as they should be."""
    made = {
        "reference/sites": sites,
        "reference/statistics": statistics,
        "reference/architectures": documents,
        "reference/gguf": gguf_keys,
        "add-a-study": words,
    }
    pages = {DOCS / f"{name}.md": table() for name, table in made.items()}
    marked = re.compile(r"(?<=<!-- made by docs/generate.py -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)
    return {path: marked.sub(lambda _, table=table: table, path.read_text(encoding="utf-8")) for path, table in pages.items()}


def api() -> dict[str, str]:
    """Every public name by autodoc, a page for each heading, and the page that lists them all."""
    listed = [*(name for names in PUBLIC.values() for name in names), *MODULES]
    if sorted(listed) != sinkjax.__all__:
        raise ValueError(f"PUBLIC and sinkjax.__all__ differ in {sorted({*listed} ^ {*sinkjax.__all__})}")
    pages, rows = {}, []
    for heading, names in PUBLIC.items():
        name = f"api-{heading.lower().replace(' ', '-')}"
        parts = (CARD_JSON, *map(_part, PARTS)) if "Card" in names else ()
        pages[name] = _page(f"# {heading}", *map(_autodoc, names), *parts)
        rows += [(f"[`{one}`]({name}.md)", _first(getattr(sinkjax, one)), heading) for one in names]
    for module, heading in MODULES.items():
        name = f"api-{module}"
        pages[name] = _page(
            f"# {heading}", f"`sinkjax.{module}`", _rst(f".. automodule:: {sinkjax._SUBMODULES[module]}\n   :members:")
        )
        rows.append((f"[`{module}`]({name}.md)", heading, heading))
    functions = [_rst(f".. autofunction:: sinkjax.tasks.{name}") for name in ("train", "load_runs")]
    trainings = "`sinkjax.tasks` trains models from scratch; see [the command line](commands.md) for what ships."
    pages["api-training"] = _page("# Training", trainings, *functions)
    rows.append(("[`tasks`](api-training.md)", "Train models from scratch.", "Training"))
    about = "Import every name from `sinkjax` itself; its module is loaded when the name is first used."
    tree = "```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```"
    pages["api"] = _page("# Python", about, _table(("name", "purpose", "page"), rows), tree)
    return pages


def _autodoc(name: str) -> str:
    if not inspect.isclass(getattr(sinkjax, name)):
        return _rst(f".. autofunction:: sinkjax.{name}")
    return _rst(f".. autoclass:: sinkjax.{name}\n   :members:")


def _part(name: str) -> str:
    return _rst(f".. autoclass:: {name}\n   :members:")


def sites() -> str:
    """The table of sites."""
    lines = [
        (f"`{site.name}`", spec.what, ", ".join(spec.axes), ", ".join(spec.ops), ", ".join(_selectors(spec)))
        for site, spec in SITES.items()
    ]
    return _table(("site", "array", "axes", "operations", "selectors"), lines)


def _selectors(spec: Any) -> list[str]:
    heads = {"head": ["heads"], "kv_head": ["kv_heads"], None: []}[spec.heads]
    return ["layers", *heads, *spec.positions, *["dims"] * bool(spec.dims)]


def statistics() -> str:
    """The table of built-in statistics."""
    says = _attributes(sinkjax.Probe)
    lines = [(f"`{name}`", entry.site.name, ", ".join(entry.dims), says[name]) for name, entry in BUILT_IN.items()]
    lines.append(("`nll`", "", "prompt, position", says["nll"]))
    return _table(("statistic", "site", "axes", "meaning"), lines)


def documents() -> str:
    """The table of what separated documents in each family's pretraining."""
    return _table(
        SEPARATORS, [(f"`{name}`", f"`{token}`" if token != "not known" else token, *more) for name, token, *more in separators()]
    )


def gguf_keys() -> str:
    """The metadata keys that are read of each GGUF architecture, and what llama.cpp takes for a missing one."""
    rotation = {key: f"`rope_scaling.{to}`" for key, to in SCALING_KEYS.items()}
    rotation |= {"rope.scaling.type": "`rope_scaling.rope_type`", "rope.scaling.attn_factor": "`rope_scaling.attention_factor`"}
    rotation |= {"rope.scale_linear": "`rope_scaling.factor`", "rope.dimension_count": "`partial_rotary_factor`"}
    shared = {key: f"`{to}`" for key, to in KEYS.items()} | rotation | {"attention.value_length": "must equal `head_dim`"}
    absent = yaml.safe_load((DOCS / "reference" / "gguf_absent.yaml").read_text(encoding="utf-8"))
    lines = [("all", f"`{key}`", to, absent["all"].get(key, "required")) for key, to in shared.items()]
    for name, family in families().items():
        if (layout := family.gguf) is None:
            continue
        own = {key: f"`{to}`" if to else "" for key, to in layout.keys.items()}
        own |= {key: f"must be {value}" for key, value in layout.fixed.items()}
        own |= {key: shared[key] for key in absent.get(name, {}) if key not in own}
        label = f"`{layout.architecture}`" + (f" ({name})" if layout.architecture == "llama" or name == "olmo3" else "")
        told = {**absent["all"], **absent.get(name, {})}
        lines += [(label, f"`{key}`", to, told.get(key, "required")) for key, to in own.items()]
    return _table(("architecture", "key", "in config.json", "llama.cpp, if it is missing"), lines)


def words() -> str:
    """What `sinkjax.study` exports, by the module that has it."""
    found = []
    for name in vocabulary.__all__:
        value = getattr(vocabulary, name)
        if inspect.isfunction(value):
            named = ", ".join(inspect.signature(value).parameters)
            module, arguments = value.__module__, f"`{named}`" if named else ""
        else:
            module, arguments = getattr(value, "__module__", "") or "", ""
        kind = module.rpartition(".")[2] if module.startswith("sinkjax.study") else "constants"
        found.append((f"`{name}`", kind, arguments, _first(value) if callable(value) else ""))
    members = inspect.getmembers_static(vocabulary.Lab, lambda value: inspect.isfunction(value) or isinstance(value, property))
    for name, value in members:
        if not name.startswith("_") and name not in OF_RUNS:
            named = ", ".join([*inspect.signature(value).parameters][1:]) if inspect.isfunction(value) else ""
            found.append((f"`lab.{name}`", "lab", f"`{named}`" if named else "", _first(value)))
    return _table(("name", "module", "arguments", "meaning"), sorted(found, key=lambda row: (row[1], row[0])))


def _first(function: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


def _attributes(cls: type) -> dict[str, str]:
    """The descriptions in the "Attributes" of a docstring."""
    text = inspect.getdoc(cls) or ""
    block = textwrap.dedent(re.split(r"\n\n\w+:\n", text.split("Attributes:\n")[1])[0])
    entries = re.findall(r"^(\w+): (.*(?:\n .*)*)", block, re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in entries}


def studies() -> str:
    """Every study: its question, its command, the fields of its own."""
    by_paper: dict[str, list[str]] = {}
    for name in declared():
        by_paper.setdefault(name.split("/")[0], []).append(name)
    shown: set[type] = set()
    if not {*by_paper} <= {*PAPERS}:
        raise ValueError(f"PAPERS lacks a heading for {sorted({*by_paper} - {*PAPERS})}")
    parts = ["# Studies", STUDIES]
    for paper, heading in PAPERS.items():
        parts.append(f"## {heading}")
        for name in by_paper.get(paper, ()):
            parts += _study(name, shown)
        for name in sorted(name for name in shipped() if name.startswith(f"{paper}/") and name not in by_paper.get(paper, ())):
            parts += [f"### {name}", f"`sinkjax run {name}`", _summary(name)]
    parts += ["## Fields that studies share", *(_fields(cls) for cls in SHARED if _documented(cls))]
    return _page(*parts)


SHARED = (OnModel, OnText, Trains, All, Series, AllTrained)
STUDIES = """Each study is one file, `sinkjax/papers/<paper>/<study>.py`, and each field of its config is an option of its
command: `sinkjax run kiya/mask --prompts 8`. A table lists the fields that a study has in addition to the
[shared ones](#fields-that-studies-share). `sinkjax run NAME --help` prints all of them with their defaults."""


def _study(name: str, shown: set[type]) -> list[str]:
    study = find(name)
    question = " ".join((study.prose.question or study.settings.__doc__ or "").split())
    command = f"`sinkjax run {name}`" if name in shipped() else f"`{name}` is the study behind the configs below."
    parts = [f"### {name}", command, question]
    own = [cls for cls in study.settings.__mro__ if dataclasses.is_dataclass(cls) and cls not in SHARED]
    if not any(own) or study.settings in shown:
        return parts
    shown.add(study.settings)
    return [*parts, _rows(own)] if any(_documented(cls) for cls in own) else parts


# Other tokens in front than those that a model was trained with, which docs/results/data/statements.csv has.
ELSEWHERE = (("smollm2-135m", "0"), ("gemma3-270m", "none"), ("gemma3-270m", "506"))
GALLERY = """One card per study: a figure if there is one, the results so far on each model, and the command.
[Findings](../results/findings.md) has the verdicts, and [How claims are judged](../judgements.md) the rule behind them.
`python scripts/gallery.py` draws the figures of finished runs."""


def gallery() -> str:
    """A card for each study, with its figure, its verdicts by model and its command."""
    drawn = json.loads((DOCS / "gallery.json").read_text(encoding="utf-8"))
    with (DOCS / "results/data/claims.csv").open(encoding="utf-8", newline="") as file:
        found = [row for row in csv.DictReader(file) if (row["model"], row["bos"]) not in ELSEWHERE and row["text"] != "packaged"]
    parts = ["# Gallery", GALLERY]
    for paper, heading in PAPERS.items():
        names = sorted(name for name in shipped() if name.startswith(f"{paper}/") and not choose(name).suite)
        if names:
            cards = [_card(name, drawn.get(name), [row for row in found if row["study"] == name]) for name in names]
            parts += [f"## {heading}", "\n".join(["::::{container} gallery", *cards, "::::"])]
    return _page(*parts)


def _card(name: str, drawn: dict[str, str] | None, found: Sequence[dict[str, str]]) -> str:
    question = " ".join(find(name).prose.question.split()) if name in declared() else ""
    verdicts: dict[str, Counter[str]] = {}
    for row in found:
        verdicts.setdefault(row["model"], Counter())[row["word"]] += 1
    said = [
        f"{model}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}" for model, counts in verdicts.items()
    ]
    lines = [f":::{{container}} card\n**[{name}](studies.md#{name.replace('/', '')})**\n"]
    if drawn:
        lines.append(f"```{{image}} ../{drawn['image']}\n:alt: {_plain(drawn['caption'])}\n```\n\n*{_plain(drawn['on'])}*\n")
    lines += [_plain(question or _summary(name)) + "\n", *[f"- {_plain(line)}" for line in said], f"\n`sinkjax run {name}`\n:::"]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """A text without markup, in one line."""
    return re.sub(r"([\\`*_<\[\]|$])", r"\\\1", " ".join(text.split()))


def _summary(name: str) -> str:
    chosen = choose(name)
    return str(getattr(chosen.config, "summary", "") or (type(chosen.config).__doc__ or "").splitlines()[0])


def _fields(cls: type) -> str:
    return f"### {cls.__name__}\n\n{(cls.__doc__ or '').splitlines()[0]}\n\n{_rows([cls])}"


def _rows(classes: Sequence[type]) -> str:
    lines = []
    for cls in classes:
        defaults = {field.name: field.default for field in dataclasses.fields(cls)}
        lines += [(f"`{name}`", _default(defaults.get(name)), said) for name, said in _documented(cls).items()]
    return _table(("field", "default", "meaning"), lines)


def _default(value: Any) -> str:
    return "" if value is dataclasses.MISSING else f"`{value!r}`"


def _documented(cls: type) -> dict[str, str]:
    """The fields that a class adds, each with the docstring below it."""
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(str(said.value.value).split())
        for field, said in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(said, ast.Expr)
        and isinstance(said.value, ast.Constant)
    }


def commands() -> str:
    """The help of each command."""
    with _narrow():
        parts = ["# Command line", _block(overview())]
        for name in VERBS:
            parts += [f"## sinkjax {name}", _block(_help(name))]
        parts += ["## The options of a study", "The options of `kiya/mask`, as an example:", _block(_help("run", "kiya/mask"))]
    return _page(*parts)


def _help(verb: str, *names: str) -> str:
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit):
        carry_out([verb, *names, "--help"])
    return shown.getvalue()


@contextlib.contextmanager
def _narrow() -> Iterator[None]:
    """A terminal of WIDTH columns."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = WIDTH
    try:
        yield
    finally:
        os.environ.pop("COLUMNS") if before is None else os.environ.update(COLUMNS=before)


def _block(text: str) -> str:
    return f"```text\n{text.strip()}\n```"


def _rst(text: str) -> str:
    return f"```{{eval-rst}}\n{text}\n```"


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [columns, ["---"] * len(columns), *(map(_cell, line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(text: str) -> str:
    """A text as a cell of a table: text in backticks stays, except bars, which would end the cell."""
    code_and_words = re.split(r"(`[^`]*`)", text)
    code_and_words[::2] = [re.sub(r"([*<_])", r"\\\1", words) for words in code_and_words[::2]]
    return "".join(code_and_words).replace("|", "\\|")


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    for path, text in kept_tables().items():
        path.write_text(text, encoding="utf-8")
