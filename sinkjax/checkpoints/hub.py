"""Hub ids: the local cache first, then the network; whatever goes wrong is one sentence."""

from __future__ import annotations

import re
from pathlib import Path

from sinkjax.checkpoints.folder import INDEX, weight_files
from sinkjax.errors import SinkjaxError

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
PATTERNS = ("*.json", "*.safetensors", "tokenizer.model")


def find_snapshot(repo: str, revision: str | None = None) -> Path:
    """The local folder of a hub repository at a revision (None: main), downloaded if it is not wholly in the cache.

    Errors: it is neither cached nor can be had; the sentence names repository, revision, the file that was missing in the cache,
    the cause, whether a token was found, and what to do next.
    """
    from huggingface_hub import get_token, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        cached = Path(snapshot_download(repo, revision=revision, local_files_only=True))
        absent = missing_file(cached)
        if absent is None:
            return cached
    except LocalEntryNotFoundError:
        absent = "config.json"
    try:
        return Path(snapshot_download(repo, revision=revision, allow_patterns=list(PATTERNS)))
    except Exception as error:  # network stacks raise many kinds; each means that the files are not to be had
        status = error.response.status_code if isinstance(error, HfHubHTTPError) and error.response is not None else None
        token = "a token was found" if get_token() else "no token was found"
        raise SinkjaxError(
            f"cannot get {absent} of {repo} at revision {revision or 'main'}: not in the local cache, and the hub answers "
            f"{f'HTTP {status}' if status else type(error).__name__} ({token}); {_next_step(repo, status)}"
        ) from None


def missing_file(folder: Path) -> str | None:
    """The first file that a cached snapshot lacks of what a model needs, or None if it is whole."""
    if not (folder / "config.json").is_file():
        return "config.json"
    try:
        return next((file.name for file in weight_files(folder) if not file.is_file()), None)
    except SinkjaxError:
        return INDEX


def _next_step(repo: str, status: int | None) -> str:
    if status in (401, 403, 404):
        return f"check the name {repo}; if it is private or gated, accept its terms on its page and run: hf auth login"
    return f"go online, or run `hf download {repo}` where there is a network and copy its folder here"
