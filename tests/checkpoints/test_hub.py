"""Hub ids: what is in the cache loads without a network; what is not is explained in one sentence."""

import socket
from types import SimpleNamespace

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

import sinkjax
from sinkjax.errors import SinkjaxError
from tests.checkpoints.files import LLAMA, random_weights, write_folder

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty hub cache, no token, and sockets that fail."""

    def unreachable(*_, **__):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unreachable)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    return tmp_path


def put(cache, shards=1):
    """owner/name in the layout of the hub's cache, at COMMIT, which is main and v1."""
    repo = cache / "models--owner--name"
    snapshot = write_folder(repo / "snapshots" / COMMIT, LLAMA, random_weights(LLAMA), shards)
    (repo / "refs").mkdir()
    for name in ("main", "v1"):
        (repo / "refs" / name).write_text(COMMIT)
    return snapshot


@pytest.mark.parametrize("revision", [None, "v1", COMMIT])
def test_a_cached_model_loads_without_a_network(cache, revision):
    put(cache)
    model = sinkjax.load("owner/name", revision=revision)
    np.testing.assert_array_equal(model.params["embed"], random_weights(LLAMA)["model.embed_tokens.weight"])
    assert (model.source["kind"], model.source["name"], model.source["revision"]) == ("hub", "owner/name", COMMIT)


@pytest.mark.parametrize("offline", [True, False])
def test_an_uncached_model_is_explained(cache, offline, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
    message = r"config\.json of owner/name .*v1: .*; no token .*hf download owner/name"
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load("owner/name", revision="v1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_gated_or_unknown_repository_says_what_to_do(cache, monkeypatch, status):
    def answer(repo, *, local_files_only=False, **_):
        if local_files_only:
            raise LocalEntryNotFoundError("not cached")
        raise HfHubHTTPError("no", response=SimpleNamespace(status_code=status, headers={}, request=None))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "secret")
    message = f"HTTP {status}; a token .*owner/name.*hf auth login"
    with pytest.raises(SinkjaxError, match=message) as caught:
        sinkjax.load("owner/name")
    assert "secret" not in str(caught.value)


def test_a_series_is_removed_from_the_cache_as_it_is_measured_but_not_what_was_there(cache, monkeypatch):
    """The hub of this test gives a snapshot for each revision, as the client does: files in the cache's layout."""
    repo = cache / "models--owner--name"
    weights = random_weights(LLAMA)
    fetched, largest = [], []

    def download(name, *, revision=None, local_files_only=False, allow_patterns=None, **_):
        folder, weighs = repo / "snapshots" / str(revision), "model*.safetensors" in allow_patterns
        if not (folder / "config.json").is_file() or (weighs and not (folder / "model.safetensors").is_file()):
            if local_files_only:
                raise LocalEntryNotFoundError("not cached")
            fetched.extend([revision] * weighs)
            add(revision, weighs)
        return str(folder)

    def add(revision, weighs=True):
        blobs, folder = repo / "blobs", repo / "snapshots" / revision
        made = write_folder(cache / "made", LLAMA, {name: array + int(revision[0], 16) for name, array in weights.items()})
        blobs.mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        for file in made.iterdir() if weighs else [made / "config.json"]:
            blob = blobs / f"{revision}-{file.name}"
            blob.write_bytes(file.read_bytes())
            (folder / file.name).unlink(missing_ok=True)
            (folder / file.name).symlink_to(blob)
        largest.append(len([*blobs.glob("*.safetensors")]))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    revisions = [digit * 40 for digit in "abcd"]
    add(revisions[1])  # this one is there before
    result = sinkjax.sweep_models(
        "owner/name", [[1, 2, 3]], [sinkjax.compose()], revisions=revisions, trim_cache=True, progress=False
    )
    assert result.checkpoint.values.tolist() == revisions
    assert fetched == [revisions[0], *revisions[2:]]
    assert max(largest) <= 3  # the one that stays, the one that is measured and the next
    assert [path.name for path in (repo / "snapshots").iterdir()] == [revisions[1]]
    assert {path.name.split("-")[0] for path in (repo / "blobs").iterdir()} == {revisions[1]}
