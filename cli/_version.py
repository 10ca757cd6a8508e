"""The text of `onward --version`."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import Any

from ..protocol.rsocket import Connection

__all__ = ["Version", "describe_version"]


class Version(argparse.Action):
    """An action that prints the version and exits; the version is looked up only then."""

    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, help="print the version, and whether it is compiled", **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print the version and exit."""
        print(describe_version())
        parser.exit()


def describe_version() -> str:
    """Return the version, whether the broker's hot path is compiled, and the Python."""
    module = sys.modules[Connection.__module__]
    kind = "pure Python" if str(module.__file__).endswith(".py") else "compiled"
    python = ".".join(str(each) for each in sys.version_info[:3])
    return f"onward {version('onward')} ({kind}, Python {python})"
