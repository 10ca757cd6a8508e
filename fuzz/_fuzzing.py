"""Mutations, a reading of the resident memory, and the loop that tries inputs, for all fuzzers."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final

MAX_ERROR_TEXT: Final = 300
"""The most characters of an error's text, for any input."""

MAX_GROWTH: Final = 32 * 1024 * 1024
"""The most bytes by which the resident memory may grow after the first tenth of the inputs."""


def mutated(
    random: Random, seeds: Sequence[bytes], pieces: Sequence[bytes], *, changes: int = 0
) -> bytes:
    """Return a seed with some changes.

    Args:
        random: The source of randomness.
        seeds: Inputs that are valid, or nearly so.
        pieces: Bytes at the limits of the format; a change puts some anywhere.
        changes: The least number of changes; a random number is added.
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


def nudged(random: Random, data: bytes, pieces: Sequence[bytes]) -> bytes:
    """Return bytes with one small change, or none; cheaper than `mutated`.

    Args:
        random: The source of randomness.
        data: The bytes.
        pieces: Bytes at the limits of the format.
    """
    chance = random.random
    place = int(chance() * (len(data) + 1))
    kind = int(chance() * 6)
    if kind == 0:
        return data
    if kind == 1:
        return data[:place] + bytes((int(chance() * 256),)) + data[place + 1 :]
    if kind == 2:
        return data[:place]
    if kind == 3:
        return data[:place] + data[place + 1 + int(chance() * 4) :]
    piece = pieces[int(chance() * len(pieces))]
    return data[:place] + piece + data[place + (len(piece) if kind == 4 else 0) :]


def noise(random: Random, most: int = 64) -> bytes:
    """Return random bytes."""
    return random.randbytes(int(random.random() * most))


def check_text_of(error: Exception) -> None:
    """Check that an error's text is short, printable and not empty."""
    text = str(error)
    if not (0 < len(text) <= MAX_ERROR_TEXT and text.isprintable()):
        raise AssertionError(f"the error's text: {text!r}")


def resident() -> int:
    """Return the resident memory of the process in bytes; 0 where `/proc` does not exist."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def arguments_of(document: str | None, count: int = 100_000) -> argparse.ArgumentParser:
    """Return a parser with the options that all fuzzers have: `--count` and `--seed`."""
    parser = argparse.ArgumentParser(description=document.splitlines()[0] if document else None)
    parser.add_argument("--count", type=int, default=count, help="inputs to try on each target")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    return parser


def drawn(
    random: Random, seeds: Sequence[bytes], pieces: Sequence[bytes], unchanged: float
) -> bytes:
    """Return noise in 3 of 100 cases, else an input, with changes or without.

    Args:
        random: The generator.
        seeds: The inputs.
        pieces: What changes put in; see `mutated`.
        unchanged: The share of cases with noise or an input without changes.
    """
    chance = random.random()
    if chance < 0.03:
        return noise(random)
    if chance < unchanged:
        return random.choice(seeds)
    return mutated(random, seeds, pieces)


def run(
    name: str,
    count: int,
    seed: int,
    make: Callable[[Random, int], bytes],
    check: Callable[[Random, bytes], bool],
) -> bool:
    """Try a number of inputs, print the result, and return whether the invariant held for all.

    Args:
        name: The target's name; it is a part of the seed.
        count: The number of inputs.
        seed: The seed of the generator.
        make: Returns the input of a number.
        check: Returns whether an input was accepted; raises if the invariant is broken.
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
