"""Whether these tests run against the compiled build (`make test-compiled`)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from onward.protocol.rsocket import Connection

COMPILED = not str(sys.modules[Connection.__module__].__file__).endswith(".py")

interpreted = pytest.mark.skipif(COMPILED, reason="replaces what compiled code has built in")

typed = pytest.mark.skipif(COMPILED, reason="plants a value that compiled code does not take")

documented = pytest.mark.skipif(COMPILED, reason="mypyc leaves out the docstrings of classes")

WRONG_TYPE: tuple[type[Exception], ...] = (ValueError, TypeError) if COMPILED else (ValueError,)
"""What a call raises for an argument of another type: mypyc checks some before our code does."""


def source_of(module: ModuleType) -> Path:
    """Return the source of a module, which lies beside what is made of it."""
    name = module.__name__.rpartition(".")[2] + ".py"
    file = Path(str(module.__file__))
    return file if file.suffix == ".py" else file.with_name(name)
