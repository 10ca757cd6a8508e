"""Routing tables in files, mapped into memory and kept open by each process."""

from __future__ import annotations

import mmap
from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from ...protocol.broker import MAX_WEIGHT, Query, Snapshot, SnapshotError, read_snapshot
from ...protocol.eventlog import route_key
from .._errors import TableUnreadable

__all__ = ["MAX_TABLES", "Numbers", "OpenTable", "open_table", "shown_path"]

MAX_TABLES: Final = 4
"""Tables that one process keeps open; the least recently used is closed."""

MAX_POINTS: Final = 50_000
"""Routes for which a table keeps the points on a ring, 512 bytes each. At the limit all are
removed."""

MAPPED: Final = b"ONWX"

Numbers: TypeAlias = npt.NDArray[np.uint32]
"""Numbers of routes in a table, in the order of the route ids."""

_opened: OrderedDict[tuple[str, int, int], OpenTable] = OrderedDict()


class OpenTable:
    """An open table.

    It keeps the hashes of each route id, 25 bytes a route: the route's id in the lake, and the two
    words of its score.

    Attributes:
        snapshot: The routes and tags.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot: Final = snapshot
        count = len(snapshot)
        self._keys: npt.NDArray[np.int64] = np.zeros(count, np.int64)
        self._known: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._factors: npt.NDArray[np.uint64] = np.zeros(count, np.uint64)
        self._summands: npt.NDArray[np.uint64] = np.zeros(count, np.uint64)
        self._scored: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        self._points: dict[int, npt.NDArray[np.uint64]] = {}

    def resolve(self, query: Query) -> Numbers:
        """Return the routes that carry all tags of a query."""
        return np.array(self.snapshot.resolve(query).to_array(), np.uint32)

    def keys(self, numbers: Numbers) -> npt.NDArray[np.int64]:
        """Return the lake's `route_id` of routes."""
        missing = numbers[~self._known[numbers]]
        for number in np.unique(missing).tolist():
            self._keys[number] = route_key(self.snapshot.route_id(number))
            self._known[number] = True
        return self._keys[numbers]

    def words(self, numbers: Numbers) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Return the factors and summands of routes' scores: see `protocol.broker.Rendezvous`."""
        missing = numbers[~self._scored[numbers]]
        for number in np.unique(missing).tolist():
            words = blake2b(self.snapshot.route_id(number), digest_size=16).digest()
            self._factors[number] = int.from_bytes(words[:8]) | 1
            self._summands[number] = int.from_bytes(words[8:])
            self._scored[number] = True
        return self._factors[numbers], self._summands[numbers]

    def ring(self, numbers: Numbers) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return points on a ring and the place of each point's route: see `BoundedRing`."""
        points = np.concatenate([self._points_of(number) for number in numbers.tolist()])
        owners = np.repeat(np.arange(len(numbers)), len(points) // len(numbers))
        order = np.argsort(points, kind="stable")
        return points[order], owners[order]

    def rings(
        self, numbers: Numbers, members: int
    ) -> Iterator[tuple[int, npt.NDArray[np.uint64], npt.NDArray[np.int64]]]:
        """Yield rings of `members` routes each, and the place of the first: see `on_rings`."""
        for start in range(0, len(numbers), members):
            yield start, *self.ring(numbers[start : start + members])

    def _points_of(self, number: int) -> npt.NDArray[np.uint64]:
        found = self._points.get(number)
        if found is None:
            if len(self._points) >= MAX_POINTS:
                self._points.clear()
            route_id = self.snapshot.route_id(number)
            digests = b"".join(blake2b(route_id + bytes((part,))).digest() for part in range(8))
            found = self._points[number] = np.frombuffer(digests, ">u8").astype(np.uint64)
        return found

    def weights(self, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Return the weights of routes, limited as by `Weighted`."""
        said = [self.snapshot.route(number).weight for number in numbers.tolist()]
        return np.minimum(np.array(said, np.float64), MAX_WEIGHT)


def open_table(path: str) -> OpenTable:
    """Return a table, and open it unless it is open and the file is unchanged.

    Args:
        path: A snapshot or lines of JSON; or the name of a file given to Spark (`--files`).

    Raises:
        TableUnreadable: The file does not exist, has another format, or is damaged.
    """
    file = _found(path)
    try:
        status = file.stat()
        key = str(file), status.st_mtime_ns, status.st_size
        table = _opened.get(key)
        if table is None:
            table = _opened[key] = OpenTable(read_snapshot(_contents(file)))
    except OSError as error:
        raise TableUnreadable(path, error.strerror or str(error)) from None
    except SnapshotError as error:
        raise TableUnreadable(path, str(error)) from None
    _opened.move_to_end(key)
    if len(_opened) > MAX_TABLES:
        _opened.popitem(last=False)
    return table


def _found(path: str) -> Path:
    file = Path(path)
    if not file.exists() and len(file.parts) == 1:
        from pyspark import SparkFiles

        sent = Path(SparkFiles.get(path))
        if sent.exists():
            return sent
    return file


def _contents(file: Path) -> bytes | memoryview:
    """Map a snapshot into memory, or read another file; the last reference keeps the map."""
    with file.open("rb") as opened:
        if opened.read(len(MAPPED)) != MAPPED:
            opened.seek(0)
            return opened.read()
        return memoryview(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))


def shown_path(path: str | Path) -> str:
    """Return the path that the executors look up: absolute, if the file exists here."""
    file = Path(path)
    return str(file.absolute()) if file.exists() else str(path)
