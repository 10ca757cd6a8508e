"""The curve of Ed25519 by its formulas (RFC 8032, section 5.1), for keys that no maker makes.

It is slow and its times tell what it works on: for tests alone.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

PRIME: Final = 2**255 - 19
ORDER: Final = 2**252 + 27742317777372353535851937790883648493
D: Final = -121665 * pow(121666, -1, PRIME) % PRIME
ROOT: Final = pow(2, (PRIME - 1) // 4, PRIME)
"""A square root of -1."""


class Point(NamedTuple):
    """A point of the curve."""

    x: int
    y: int


NEUTRAL: Final = Point(0, 1)


def add(one: Point, other: Point) -> Point:
    """Return the sum of two points."""
    product = D * one.x * other.x * one.y * other.y
    x = (one.x * other.y + other.x * one.y) * pow(1 + product, -1, PRIME)
    y = (one.y * other.y + one.x * other.x) * pow(1 - product, -1, PRIME)
    return Point(x % PRIME, y % PRIME)


def multiply(factor: int, point: Point) -> Point:
    """Return a multiple of a point."""
    result = NEUTRAL
    while factor:
        if factor & 1:
            result = add(result, point)
        point = add(point, point)
        factor >>= 1
    return result


def point_of(y: int) -> Point | None:
    """Return the point with this y and an even x, or `None` if there is none."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    if x * x % PRIME != square:
        x = x * ROOT % PRIME
    if x * x % PRIME != square:
        return None
    return Point(PRIME - x if x & 1 else x, y)


_BASE = point_of(4 * pow(5, -1, PRIME) % PRIME)
assert _BASE is not None
BASE: Final = _BASE


def encoded(point: Point) -> bytes:
    """Return the 32 bytes of a point."""
    return spelled(point.y, point.x & 1)


def spelled(y: int, sign: int) -> bytes:
    """Return 32 bytes with this y, which may be over the prime, and this bit for the x."""
    return (y | sign << 255).to_bytes(32, "little")


def small_points() -> list[Point]:
    """Return the eight points whose multiple by 8 is the neutral one."""
    for y in range(2, 100):
        point = point_of(y)
        if point is None:
            continue
        torsion = multiply(ORDER, point)
        points = [multiply(factor, torsion) for factor in range(8)]
        if len(set(points)) == 8:
            return points
    raise AssertionError("no point of order 8")


def other_spellings(points: list[Point]) -> list[bytes]:
    """Return the bytes that a lax reader takes for some of these points, and no strict one.

    They have a y that is not below the prime, or a sign of the x where this is 0.
    """
    found = {
        spelled(y, sign)
        for point in points
        for y in (point.y, point.y + PRIME)
        if y < 2**255
        for sign in ((0, 1) if point.x == 0 else (point.x & 1,))
    }
    return sorted(found - {encoded(point) for point in points})


def scalar_of(seed: bytes) -> tuple[int, bytes]:
    """Return the secret number of a key of 32 bytes, and what its signatures are made with."""
    digest = hashlib.sha512(seed).digest()
    number = int.from_bytes(digest[:32], "little")
    return (number & (2**254 - 8)) | 2**254, digest[32:]


def challenge(commitment: bytes, key: bytes, data: bytes) -> int:
    """Return the number that a signature answers."""
    return int.from_bytes(hashlib.sha512(commitment + key + data).digest(), "little") % ORDER


def signature_of(commitment: bytes, answer: int) -> bytes:
    """Return the bytes of a signature."""
    return commitment + answer.to_bytes(32, "little")
