"""The files of a card for other programs: one immutable folder whose files state their model and a checksum, and its readers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sinkjax.checkpoints.model import Model, check_model
from sinkjax.config_files.checks import refuse
from sinkjax.config_files.files import CARD_FILE, own_folder, read_text, user_location, user_path, whole_folder
from sinkjax.config_files.locations import url_protocol
from sinkjax.edits.edit import Edit, compose
from sinkjax.edits.named import set_residual
from sinkjax.errors import SinkjaxError, differences, short
from sinkjax.model.fingerprint import ModelIdentity, digest

VERSION = "sinkjax-card/4"
NAMES = CARD, SINKS, CLAMP, PREFIX = (CARD_FILE, "sink_tokens.json", "clamp.json", "prefix.safetensors")
PAGE = "card.html"
AGAIN = "make the card again by `sinkjax card`"


USE = """import json
from pathlib import Path

sinks = json.loads(Path("sink_tokens.json").read_text())
mask = sink_mask(tokens, sinks)  # tokens: int [..., T], with the prefix that the model reads
"""


def as_json(content: Mapping[str, Any]) -> bytes:
    """Return the bytes of a JSON file with its version and checksum. Errors: NaN or infinity."""
    stated = {"version": VERSION, **content}
    try:
        return (json.dumps(stated | {"checksum": _sum(stated)}, indent=1, allow_nan=False) + "\n").encode()
    except ValueError:
        raise SinkjaxError("the card has a number that is NaN or infinite, so it cannot be saved") from None


def refuse_changed(content: Mapping[str, Any], where: object) -> None:
    """Raise unless the content of a JSON file agrees with its checksum."""
    known = content.get("version") == VERSION and "checksum" in content
    refuse(not known, f"{where} is not of version {VERSION}, whose files have a checksum: {AGAIN}")
    rest = {name: value for name, value in content.items() if name != "checksum"}
    refuse(content["checksum"] != _sum(rest), f"{where} has changed since it was written: {AGAIN}")


def _sum(content: Mapping[str, Any]) -> str:
    return digest(json.dumps(content, sort_keys=True))


def read(path: Path) -> dict[str, Any]:
    """Read a JSON file of a card. Errors: it is missing, has changed since it was written, or has another version."""
    try:
        content = json.loads(read_text(path))
    except (json.JSONDecodeError, RecursionError):
        raise SinkjaxError(f"{path} is not JSON, so it has changed since it was written: {AGAIN}") from None
    refuse(not isinstance(content, dict), f"{path} is not the file of a card")
    refuse_changed(content, path)
    return dict(content)


def _of_model(path: str | Path, model: Model, name: str, lacking: str) -> dict[str, Any]:
    """Read a card's JSON file with an entry `name` for a model. Errors: as for `read`; it belongs to another model."""
    check_model(model)
    content = read(path := user_path(path))
    ModelIdentity.read(content.get("model"), path).refuse_other(str(path), model.params, model.config, model.source)
    refuse(name not in content, f"{path} {lacking}")
    return content


def load_sinks(path: str | Path, model: Model) -> dict[str, Any]:
    """Read a card's sink_tokens.json for `sink_mask`.

    Args:
        path: The file.
        model: The model that it is used with.

    Returns:
        The content: `positions` that are sinks, `tokens` that are sinks at any position, and their precision and recall.

    Raises:
        SinkjaxError: The file is missing, has changed since it was written, or belongs to another model.
    """
    return _of_model(path, model, "positions", f"is not the {SINKS} of a card")


def load_clamp(path: str | Path, model: Model) -> Edit:
    """Read a card's clamp.json as an edit.

    Args:
        path: The file.
        model: The model that it is used with.

    Returns:
        The edit, which limits the dims of the activation that stands out to the largest |h| at later positions.

    Raises:
        SinkjaxError: The file is missing, has changed since it was written, or belongs to another model; no activation stands
            out.
    """
    return clamp(_of_model(path, model, "bound", "has no activation that stands out, so it clamps nothing"))


def clamp(content: Mapping[str, Any]) -> Edit:
    """Return the edit that clamp.json describes: each value beyond the bound is set to the bound, with its sign."""
    bound, limits = content["bound"], []
    for layer, values in zip(content["layers"], content["values"], strict=True):
        above = np.abs(values) > bound
        dims, limit = np.array(content["dims"])[above], np.sign(values)[above] * bound
        limits.append(set_residual(content["position"], limit, dims=dims, layers=layer))
    return compose(*limits)


def claimed(folder: str | Path, identity: Mapping[str, Any] | None = None) -> Path:
    """Return the path of a card's folder, which must be new, empty, or the folder of the same card.

    identity: of the card (`Card.identity`); None if it is not known yet. Errors: a URL; a file, a link or the working directory;
    other content; another card.
    """
    whole = f"a card is a local folder that is put in place whole, which {url_protocol(folder)}:// cannot do"
    refuse(url_protocol(folder) not in (None, "file", "local"), f"{whole}: save it here, and copy it there")
    path = Path(user_location(folder))
    if not (there := own_folder(path, "the card")):
        return path
    others = [name for name in there if name not in (*NAMES, PAGE) or not (path / name).is_file()]
    content = f"{path} exists with other content ({', '.join(others[:3] or there)})"
    refuse(bool(others) or CARD not in there, f"{content}; choose another folder for the card")
    instead = "choose another folder or delete it"
    try:
        card = read(path / CARD)
        stated = identity_of(card["model"], card["passages"])
    except (SinkjaxError, KeyError, TypeError):
        raise SinkjaxError(f"{path} holds a card that is damaged, or of another version of sinkjax; {instead}") from None
    other = [] if identity is None else differences(stated, dict(identity))
    refuse(bool(other), f"{path} holds another card ({'; '.join(other)}); {instead}")
    return path


def identity_of(model: Mapping[str, Any], passages: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must be the same in a folder: the model, and the passages that were measured."""
    of_model = {name: model.get(name) for name in ("name", "dtype", "weights", "config")}
    return {**of_model, "passages": digest(json.dumps(passages, sort_keys=True))}


def put(folder: str | Path, contents: Mapping[str, bytes], identity: Mapping[str, Any]) -> Path:
    """Put a card's files, by name, in place as one whole folder. Errors: as for `claimed`; no permission, no space."""
    path = claimed(folder, identity)
    with whole_folder(path.absolute(), sum(map(len, contents.values()))) as scratch:
        for name, content in contents.items():
            (scratch / name).write_bytes(content)
        claimed(path, identity)  # another process may have been faster
    return path


def sink_mask(tokens: ArrayLike, sinks: Mapping[str, Any]) -> NDArray[np.bool_]:
    """Return which tokens are sinks.

    Args:
        tokens: Token ids, int [..., T], including the prefix that the model reads.
        sinks: The content of sink_tokens.json (`load_sinks`): `positions` that are sinks, and `tokens` that are sinks at any
            position.

    Returns:
        bool [..., T].

    Raises:
        SinkjaxError: The content has changed since it was written, or is not that of a sink_tokens.json; `tokens` has an id
            outside the vocabulary.
    """
    refuse(not isinstance(sinks, Mapping), f"sinks must be the content of {SINKS}, not {short(sinks)}")
    if {"version", "checksum"} & sinks.keys():
        refuse_changed(sinks, SINKS)
    size = sinks.get("vocab_size")
    _refuse_not_ids("tokens", tokens, size, 1)
    for name, most in (("positions", None), ("tokens", size)):
        refuse(name not in sinks, f"sinks lack {name!r}: they must be the content of {SINKS}")
        _refuse_not_ids(f"{name} of sinks", sinks[name], most)
    return _marked(np.asarray(tokens), sinks)


def _refuse_not_ids(what: str, values: Any, size: int | None, least: int = 0) -> None:
    """Raise unless values are integers of at least 0 and, if given, below `size`. least: minimum number of axes."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise SinkjaxError(f"{what} must be rows of the same length") from None
    not_ids = array.size > 0 and array.dtype.kind not in "iu"
    refuse(not_ids or array.ndim < least, f"{what} must be integers{' [..., T]' * least}, not {array.dtype} {array.shape}")
    most = np.inf if size is None else size
    if (wrong := array[(array < 0) | (array >= most)]).size:
        limit = "" if size is None else f" and below {size}, the size of the vocabulary"
        raise SinkjaxError(f"{what} must be at least 0{limit}, not {wrong.flat[0]}")


def _marked(tokens: Any, sinks: Mapping[str, Any]) -> NDArray[np.bool_]:
    tokens = np.asarray(tokens)
    mask = np.isin(tokens, sinks["tokens"])
    mask[..., [position for position in sinks["positions"] if position < tokens.shape[-1]]] = True
    return mask


def mask_program() -> str:
    """Return `sink_mask` as a program that needs numpy only."""
    body = inspect.getsource(_marked).partition("\n")[2]
    return f"import numpy as np\n\n\ndef sink_mask(tokens, sinks):\n{body}"
