"""The start of the command, while Python imports it."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from onward.cli import main
from onward.cli._status import Status
from tests.support.fixtures import Capsys


class Interrupted(ModuleType):
    """A module of which the import is interrupted."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_an_interrupt_while_it_is_imported_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setitem(sys.modules, "onward.cli._main", Interrupted("onward.cli._main"))
    assert main(["routes"]) == Status.FAILED
    assert capsys.readouterr() == ("", "onward: interrupted\n")
