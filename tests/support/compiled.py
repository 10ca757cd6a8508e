"""Whether these tests run against the compiled build (`make test-compiled`)."""

from __future__ import annotations

import sys

import pytest

from onward.protocol.rsocket import Connection

COMPILED = not str(sys.modules[Connection.__module__].__file__).endswith(".py")

interpreted = pytest.mark.skipif(COMPILED, reason="replaces a method, which compiled code calls")
