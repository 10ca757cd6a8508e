"""A small heap for what is timed."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Leave what other tests have made out of collections: of a gigabyte one takes a second.

    The suite fails a transport that blocks the event loop for that long.
    """
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
