"""What the fuzzers share: mutations, a look at the memory, and the loop that tries inputs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

MAX_ERROR_TEXT: Final = 300
"""Most characters of an error's text, whatever was in the input."""

MAX_GROWTH: Final = 32 * 1024 * 1024
"""Bytes the resident memory may grow after the first tenth of the inputs."""


def mutated(
    random: Random, seeds: Sequence[bytes], pieces: Sequence[bytes], *, changes: int = 0
) -> bytes:
    """One of the seeds with some changes.

    Args:
        random: Where chance comes from.
        seeds: Inputs that are right, or nearly so.
        pieces: Bytes on the edge of what a form allows; a change puts some anywhere.
        changes: Changes there are in any case; to them come none or a few.
    """
    data = bytearray(random.choice(seeds))
    for _ in range(changes + int(random.expovariate(1.0))):
        place = int(random.random() * (len(data) + 1))
        kind = int(random.random() * 5)
        if kind == 0 and place < len(data):
            data[place] = int(random.random() * 256)
        elif kind == 1:
            piece = random.choice(pieces)
            data[place : place + len(piece)] = piece
        elif kind == 2:
            data[place:place] = random.choice(pieces)
        elif kind == 3:
            del data[place : place + 1 + int(random.random() * 4)]
        else:
            other = random.choice(seeds)
            data[place:] = other[int(random.random() * len(other)) :]
    return bytes(data)


def noise(random: Random, most: int = 64) -> bytes:
    """Bytes that mean nothing."""
    return random.randbytes(int(random.random() * most))


def check_text_of(error: Exception) -> None:
    """See that an error can be shown to anybody."""
    text = str(error)
    if not (0 < len(text) <= MAX_ERROR_TEXT and text.isprintable()):
        raise AssertionError(f"the error's text: {text!r}")


def resident() -> int:
    """Bytes of memory the process has resident; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def arguments_of(document: str | None, count: int = 100_000) -> argparse.ArgumentParser:
    """The options that all have: how many inputs, and which."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0] if document else None)
    parser.add_argument("--count", type=int, default=count, help="inputs to try on each target")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    return parser


def run(
    name: str,
    count: int,
    seed: int,
    make: Callable[[Random, int], bytes],
    check: Callable[[Random, bytes], bool],
) -> bool:
    """Try so many inputs; print what came of it, and tell whether all held.

    Args:
        name: The target's; it is a part of the seed.
        count: How many inputs.
        seed: What to start the generator with.
        make: Makes the input of a number.
        check: Takes an input; tells whether it was accepted, raises if the invariant is broken.
    """
    random = Random(f"{name} {seed}")
    started, before, taken = time.perf_counter(), 0, 0
    for number in range(count):
        if number == count // 10:
            before = resident()
        data = make(random, number)
        try:
            taken += check(random, data)
        except Exception as error:  # noqa: BLE001 - any is a finding
            print(f"{name}: FAILED at input {number}, seed {seed}: {error!r}")
            print(f"input {data.hex()}")
            return False
    grown = resident() - before
    print(
        f"{name}: {count} inputs, seed {seed}: {taken} taken, {count - taken} refused, "
        f"{grown / 1024:.0f} KiB grown, {time.perf_counter() - started:.1f} s"
    )
    if grown > MAX_GROWTH:
        print(f"{name}: FAILED: over {MAX_GROWTH} bytes grown")
        return False
    return True
