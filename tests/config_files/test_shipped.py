"""Shipped configs are found by name, and a wrong name is refused with the nearest."""

from __future__ import annotations

from sinkjax.config_files.files import config_path, configs


def test_every_config_is_a_readable_file_under_its_own_name():
    for name, file in configs().items():
        assert config_path(name) == file
        assert file.name == f"{name.rpartition('/')[2]}.yaml"
        assert file.read_text(encoding="utf-8").strip()
