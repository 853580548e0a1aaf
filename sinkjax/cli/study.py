"""`sinkjax study`: print a study as YAML, which `sinkjax run` reads back as the same study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from sinkjax.cli.options import read
from sinkjax.errors import SinkjaxError


@dataclass(frozen=True)
class StudyOptions:
    """Print a study as YAML. Save it, change it, and run it: sinkjax study kiya/mask > mine.yaml; sinkjax run mine.yaml."""

    name: tyro.conf.Positional[str]
    """PAPER/STUDY, or the path of a .py or .yaml file"""


def study(arguments: Sequence[str]) -> None:
    """print a study as YAML, to read or to start your own from"""
    options = read(StudyOptions, arguments, "study")
    from sinkjax.studies.as_yaml import to_yaml
    from sinkjax.studies.declaration import Study
    from sinkjax.studies.registry import as_value

    found = as_value(options.name)
    if not isinstance(found, Study):
        raise SinkjaxError(f"{options.name} is declared by functions and cannot be printed as YAML; its source is the module")
    print(to_yaml(found), end="")
