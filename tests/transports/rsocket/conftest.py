"""The broker's two ways: with the express path and without it."""

from __future__ import annotations

import pytest

from tests.support.express import WAYS, set_express_path


@pytest.fixture(autouse=True, params=WAYS)
def express(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Run each test with the express path, and with `make test-all` without it as well."""
    on: bool = request.param
    set_express_path(monkeypatch, on)
    return on
