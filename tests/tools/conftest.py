"""A wheel and a source distribution, built once for all tests of these."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.support.checkouts import ROOT, build, copy_checkout
from tools import sbom

EPOCH: Final = "1700000000"


@pytest.fixture(scope="session")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bill of materials in a file of any name."""
    file = tmp_path_factory.mktemp("bill") / "any-name.json"
    made = sbom.make_bill(ROOT, sbom.installed(sys.executable), int(EPOCH))
    file.write_text(json.dumps(made))
    return file


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory, bill: Path) -> Path:
    """A wheel of pure Python with that bill."""
    checkout = copy_checkout(tmp_path_factory.mktemp("wheel") / "checkout")
    return build(checkout, "build_wheel", SOURCE_DATE_EPOCH=EPOCH, ONWARD_SBOM=str(bill))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution."""
    checkout = copy_checkout(tmp_path_factory.mktemp("sdist") / "checkout")
    return build(checkout, "build_sdist", SOURCE_DATE_EPOCH=EPOCH)
