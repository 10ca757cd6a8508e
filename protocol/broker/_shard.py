"""Methods of sharding: the choice of the route that is responsible for a key.

A `Sharding` makes a `Placement` of the routes there are; a placement says which one a key
belongs to. The order in which the routes are given does not matter. All of it depends on
nothing but the route ids, so that all brokers, processes and versions agree.

How many keys move when a route joins n others, or leaves (in parts of all keys):

| method | joins | leaves | a pick costs |
| --- | --- | --- | --- |
| `Rendezvous` | 1/(n+1), all to it | 1/n, all of them its own | time in proportion to n |
| `BoundedRing` | about 1/(n+1), all to it | about 1/n, its own | a search, and n loads |
| `Jump` | 1/(n+1) if its id is the greatest, else more | the same | a few steps |
| `Modulo` | nearly all | nearly all | one division |

A key is the 64-bit hash of the tags that choose. It is the first 8 bytes, big-endian, that
BLAKE2b with a digest size of 8 makes of all tags one after the other, each written as

- key: `00` and the number in 4 bytes, or `01`, the length in 2 bytes, and UTF-8;
- value: `00` if it is null, or `01`, the length in 2 bytes, and UTF-8.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from struct import Struct
from types import MappingProxyType
from typing import Final

from ._tags import TagList

__all__ = [
    "SHARD_METHODS",
    "BoundedRing",
    "Jump",
    "Modulo",
    "Placement",
    "Rendezvous",
    "Sharding",
    "shard_hash",
]

_MASK: Final = 2**64 - 1
_TWO_WORDS: Final = Struct(">QQ")
_POINTS: Final = Struct(">8Q")


def shard_hash(keys: TagList) -> int:
    """Return the 64-bit key that tags stand for, their order included.

    The same in all processes and versions. See the module for the bytes that are hashed.
    """
    data = bytearray()
    for key, value in keys:
        if isinstance(key, int):
            data += b"\x00" + key.to_bytes(4)
        else:
            text = key.encode()
            data += b"\x01" + len(text).to_bytes(2) + text
        if value is None:
            data += b"\x00"
        else:
            text = value.encode()
            data += b"\x01" + len(text).to_bytes(2) + text
    return int.from_bytes(blake2b(data, digest_size=8).digest())


class Placement(ABC):
    """A function from keys to the members that it was prepared for."""

    __slots__ = ()

    @abstractmethod
    def pick(self, key: int, load: Callable[[int], int]) -> int:
        """Return the index of a member in the sequence given to `Sharding.prepare`.

        Args:
            key: 64 bits, as `shard_hash` returns them.
            load: Returns how many requests the member with an index has in hand. Only
                methods that look at load call it.
        """


class Sharding(ABC):
    """A method of sharding. It has no state."""

    __slots__ = ()

    @abstractmethod
    def prepare(self, members: Sequence[bytes]) -> Placement:
        """Prepare to place keys.

        Args:
            members: Route ids, each once, in any order.

        Raises:
            ValueError: There are none.
        """


def _sorted(members: Sequence[bytes]) -> list[int]:
    """Return the indices of the members in the order of their ids."""
    if not members:
        raise ValueError("a placement needs a member")
    return sorted(range(len(members)), key=members.__getitem__)


class Rendezvous(Sharding):
    """The member with the highest score for the key (highest random weight).

    A member's score is `(m * key + a) mod 2^64`. The two words m and a, big-endian, are the
    16 bytes that BLAKE2b with a digest size of 16 makes of its route id, m with its last
    bit set. Among equal scores the lowest route id wins.
    """

    __slots__ = ()

    def prepare(self, members: Sequence[bytes]) -> Placement:
        """Compute the words of each member."""
        return _Scores(members)


class _Scores(Placement):
    """One multiplication and one addition of long integers make the scores of all members.

    Each member has 128 bits of the factor and of the summand, so no product reaches into the
    next member's. The lower half of its 128 bits in the result is its score.
    """

    __slots__ = ("_factor", "_order", "_size", "_summand", "_unpack")

    def __init__(self, members: Sequence[bytes]) -> None:
        self._order: Final = _sorted(members)
        factors, summands = bytearray(), bytearray()
        for index in self._order:
            words = blake2b(members[index], digest_size=16).digest()
            factor, summand = _TWO_WORDS.unpack(words)
            factors += (factor | 1).to_bytes(16, "little")
            summands += summand.to_bytes(16, "little")
        self._factor: Final = int.from_bytes(factors, "little")
        self._summand: Final = int.from_bytes(summands, "little")
        self._size: Final = len(factors)
        self._unpack: Final = Struct("<" + "Q8x" * len(members)).unpack

    def pick(self, key: int, load: Callable[[int], int]) -> int:
        """Return the index of the member with the highest score."""
        raw = (self._factor * key + self._summand).to_bytes(self._size, "little")
        scores = self._unpack(raw)
        return self._order[scores.index(max(scores))]


class Jump(Sharding):
    """Jump consistent hash over the members in the order of their ids.

    Few steps and no memory, but numbers have no gaps: when a member other than the last
    leaves, those after it move up, and their keys with them. For sets that grow at the end.
    """

    __slots__ = ()

    def prepare(self, members: Sequence[bytes]) -> Placement:
        """Sort the members."""
        return _Buckets(members)


class _Buckets(Placement):
    __slots__ = ("_order",)

    def __init__(self, members: Sequence[bytes]) -> None:
        self._order: Final = _sorted(members)

    def pick(self, key: int, load: Callable[[int], int]) -> int:
        """Return the index of the member of the bucket that the key falls into."""
        count = len(self._order)
        bucket, jump = 0, 0
        while jump < count:
            bucket = jump
            key = (key * 2862933555777941757 + 1) & _MASK
            jump = int((bucket + 1) * (2.0**31 / ((key >> 33) + 1)))
        return self._order[bucket]


class Modulo(Sharding):
    """The key modulo the number of members, in the order of their ids.

    The simplest method; when a member joins or leaves, nearly all keys move.
    """

    __slots__ = ()

    def prepare(self, members: Sequence[bytes]) -> Placement:
        """Sort the members."""
        return _Remainders(members)


class _Remainders(Placement):
    __slots__ = ("_order",)

    def __init__(self, members: Sequence[bytes]) -> None:
        self._order: Final = _sorted(members)

    def pick(self, key: int, load: Callable[[int], int]) -> int:
        """Return the index of the member at the position of the remainder."""
        return self._order[key % len(self._order)]


class BoundedRing(Sharding):
    """A ring of hashes on which no member gets more than its share of load, and a quarter.

    Each member has 64 points on a ring of 2^64. A key belongs to the member of the first
    point at or after it, unless with one more request that would have more than 5/4 of what
    each has on average, rounded up: then the next point's is looked at. So a hot key
    overflows to others, always the same ones.

    The points are eight times eight words, big-endian, that BLAKE2b with a digest size of 64
    makes of the route id and one byte, 0 to 7. Of equal points the lower route id's is first.
    """

    __slots__ = ()

    def prepare(self, members: Sequence[bytes]) -> Placement:
        """Sort the points of all members: takes some 25 microseconds for each of them."""
        return _Ring(members)


class _Ring(Placement):
    __slots__ = ("_count", "_owners", "_points")

    def __init__(self, members: Sequence[bytes]) -> None:
        points = [
            (point, index)
            for index in _sorted(members)
            for number in range(8)
            for point in _POINTS.unpack(blake2b(members[index] + bytes((number,))).digest())
        ]
        # Stable: of equal points the lower route id's stays first.
        points.sort(key=lambda each: each[0])
        self._points: Final = [point for point, _ in points]
        self._owners: Final = [index for _, index in points]
        self._count: Final = len(members)

    def pick(self, key: int, load: Callable[[int], int]) -> int:
        """Return the index of the first member from the key on that is not full."""
        count = self._count
        loads = [load(index) for index in range(count)]
        # ceil(5/4 * (total + 1) / count), without a fraction that is not exact
        most = -(-5 * (sum(loads) + 1) // (4 * count))
        owners = self._owners
        first = bisect_left(self._points, key)
        for at in range(first - len(owners), first):
            owner = owners[at]
            if loads[owner] < most:
                return owner
        raise AssertionError("not all can have more than the average")


SHARD_METHODS: Final[Mapping[str, Callable[[], Sharding]]] = MappingProxyType(
    {
        "rendezvous": Rendezvous,
        "jump": Jump,
        "boundedring": BoundedRing,
        "modulo": Modulo,
    }
)
"""The methods of sharding by name, in the form of `method_name`."""
