"""Resolve Hugging Face hub ids: the local cache first, then the network. Every failure is one sentence."""

from __future__ import annotations

import re
from pathlib import Path

from sinkjax.checkpoints import adapters
from sinkjax.checkpoints.folder import CONFIG, INDEX, conversion, weight_files
from sinkjax.errors import SinkjaxError
from sinkjax.runtime import extras

HUB_ID = re.compile(r"(?!.*(--|\.\.))[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<![.-])(?<!\.git)", re.ASCII)
WEIGHTS = ["model*.safetensors", adapters.WEIGHTS]
PATTERNS = ["*.json", "tokenizer.model", "merges.txt"]


def find_snapshot(repo: str, revision: str | None = None, weights: bool = True) -> Path:
    """Return the local folder of a Hub repository at a revision (None: main), downloading it if the cache is incomplete.

    weights: whether weights are needed too. Errors: it is not cached and not available; the message names the repository, the
    revision, the first missing file, the cause, whether a token was found, and what to do next.
    """
    folder, missing = _in_cache(repo, revision, weights)
    if missing is None:
        return folder
    try:
        folder = _downloaded(repo, revision, weights)
    except Exception as error:  # network libraries raise many kinds of errors; each means that the file is not available
        raise _unavailable(repo, revision, missing, error) from None
    if missing := missing_file(folder, weights):  # offline, the Hub client may return an incomplete folder
        raise _unavailable(repo, revision, missing, None)
    return folder


def held(repo: str, revision: str | None = None) -> bool:
    """Return whether the local cache has a complete repository at a revision, including weights. Does not use the network."""
    return _in_cache(repo, revision)[1] is None


def remove(repo: str, revision: str | None = None) -> None:
    """Remove a repository at a revision from the local cache, except files that another revision shares."""
    from huggingface_hub import constants, scan_cache_dir

    folder, missing = _in_cache(repo, revision)
    if missing is None:
        scan_cache_dir(constants.HF_HUB_CACHE).delete_revisions(folder.name).execute()


def _in_cache(repo: str, revision: str | None, weights: bool = True) -> tuple[Path, str | None]:
    """Return a repository's folder at a revision in the local cache, and the first file missing there.

    Errors: the Hub client is not installed.
    """
    extras.require(f"the hub id {repo}", "hub", "huggingface_hub")
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = _downloaded(repo, revision, weights, local_files_only=True)
    except LocalEntryNotFoundError:
        return Path(), CONFIG
    return folder, missing_file(folder, weights)


def _downloaded(repo: str, revision: str | None, weights: bool, local_files_only: bool = False) -> Path:
    from huggingface_hub import snapshot_download

    patterns = [*PATTERNS, *WEIGHTS] if weights else PATTERNS
    return Path(snapshot_download(repo, revision=revision, allow_patterns=patterns, local_files_only=local_files_only))


def missing_file(folder: Path, weights: bool = True) -> str | None:
    """Return the first file that a snapshot of a model lacks, or None if it is complete."""
    if not (folder / CONFIG).is_file():
        alone = (folder / adapters.SETTINGS).is_file()
        return CONFIG if not alone else adapters.WEIGHTS if weights and not (folder / adapters.WEIGHTS).is_file() else None
    if not weights:
        return None
    try:
        return next((file.name for file in weight_files(folder) if not file.is_file()), None)
    except SinkjaxError:
        return INDEX


def _unavailable(repo: str, revision: str | None, missing: str, error: Exception | None) -> SinkjaxError:
    from huggingface_hub import get_token

    status = getattr(getattr(error, "response", None), "status_code", None)
    step = f"go online, or run `hf download {repo}` where there is a network and copy its folder here"
    if status is not None:
        cause = f"the hub answers HTTP {status}"
        step = f"check the name {repo}; if it is private or gated, accept its terms on its page and run: hf auth login"
    elif error is not None:
        cause = f"the hub cannot be reached ({type(error.__cause__ or error).__name__})"
    else:
        cause = "the hub does not give it"
        step += f"; if its weights are there as pickles only, {conversion(repo)}" if missing == INDEX else ""
    token = "a token was found" if get_token() else "no token was found"
    where = f"{missing} of {repo} at revision {revision or 'main'}"
    return SinkjaxError(f"cannot get {where}: it is not in the local cache, and {cause}; {token}; {step}")
