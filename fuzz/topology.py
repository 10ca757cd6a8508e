"""Send random and mutated text to the reader of topology files.

The seeds are the example files and one file with every feature. The invariant: a plan, or a
`TopologyError`; no other error is raised. The texts of the problems in the error are printable and
bounded in length and number, and each has a line of the file. All names that a plan refers to are
defined in it. The process does not grow.

    python fuzz/topology.py --count 100000 --seed 1
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random
from typing import Final

from _fuzzing import MAX_GROWTH, resident

from onward.actors.topology import KINDS
from onward.protocol.topology import (
    Problem,
    TopologyError,
    TopologyLimits,
    TopologyPlan,
    read_topology,
)

FILE: Final = "t.toml"
OPTIONS: Final = {name: kind.options for name, kind in KINDS.items()}
LIMITS: Final = TopologyLimits(problems=10)
MAX_PROBLEM_TEXT: Final = 400
"""The most characters of one problem, its key included."""

FULL: Final = b"""\
title = "Two"

[nodes.far.workers]
echo = "echo"
relay = { kind = "forward", also = ["hop"], mailbox = 5, supervision = "stop" }
own = { class = "shop.workers:Orders.Fast", makes = ["made"], options = { size = 3 } }

[nodes.far.workers.last]
kind = "echo"
mailbox = { limit = 7, overflow = "drop-oldest" }
supervision = { on_failure = "restart", max_restarts = 2, within = 10 }

[nodes.far.listeners]
main = { uri = "tcp://127.0.0.1:0", expose = ["relay", "made"], allow = ["echo"], \
options = { max_frame = 100 } }
side = "uds://{dir}/side"

[nodes.near]
error_replies = true
[[links]]
from = "near"
to = "far.main"
as = "way"
simulation = { latency = 0.5, loss = 0.1, duplicate = 0, reorder = 1, reorder_by = 2 }

[[requests]]
from = "near"
route = "way => relay => echo"
payload = "hi"
expect = "hi"
within = 2.5

[simulation]
seed = -3
latency = [0.1, 1]
"""

PIECES: Final = [
    *(b"[", b"]", b"[[", b"]]", b"{", b"}", b"=", b'"', b"'", b'"""', b"#", b",", b".", b"\n"),
    *(b"\\", b"\\u0000", b"\\uD800", b"\x00", b"\x7f", b"\xc3", b"\xed\xa0\x80", b"\r", b"\t"),
    *(b"nan", b"inf", b"-1", b"0", b"1e400", b"9" * 40, b"0x" + b"f" * 40, b"true", b'""', b"[]"),
    *(b"1979-05-27T07:32:00Z", b"07:32:00", b"{}", b"{ }", b"[" * 60, b"a." * 60, b"=>", b" => "),
    *(
        b"near",
        b"far",
        b"main",
        b"echo",
        b"nodes",
        b"links",
        b"kind",
        b"class",
        b"%zz",
        b"0#",
        b"9",
    ),
    *(b"\n[[links]]\n", b"\n[nodes.x]\n", b'\nfrom = "far"\n', b"options = { a = 1 }\n"),
]


def mutated(random: Random, seeds: list[bytes]) -> bytes:
    data = bytearray(random.choice(seeds))
    for _ in range(1 + int(random.expovariate(1.0))):
        place = int(random.random() * (len(data) + 1))
        kind = int(random.random() * 6)
        if kind == 0 and place < len(data):
            data[place] = int(random.random() * 256)
        elif kind == 1:
            piece = random.choice(PIECES)
            data[place : place + len(piece)] = piece
        elif kind == 2:
            data[place:place] = random.choice(PIECES)
        elif kind == 3:
            del data[place : place + 1 + int(random.random() * 8)]
        else:
            _move_line(random, data, seeds, kind == 4)
    return bytes(data)


def _move_line(random: Random, data: bytearray, seeds: list[bytes], replace: bool) -> None:
    """Put a line of some file anywhere: most mutations of bytes are not even TOML."""
    lines = data.split(b"\n")
    place = int(random.random() * len(lines))
    line = random.choice(random.choice(seeds).split(b"\n"))
    lines[place : place + replace] = [bytearray(line)]
    data[:] = b"\n".join(lines)


def check(data: bytes) -> bool:
    """Read one input; return whether it is a topology."""
    try:
        plan = read_topology(data, FILE, kinds=OPTIONS, limits=LIMITS)
    except TopologyError as error:
        if not 0 < len(error.problems) <= LIMITS.problems or error.left_out < 0:
            raise AssertionError(f"{len(error.problems)} problems") from error
        lines = data.count(b"\n") + 1
        for problem in error.problems:
            check_problem(problem, lines)
        if [each.line for each in error.problems] != sorted(each.line for each in error.problems):
            raise AssertionError("the problems are not in the order of the lines") from error
        return False
    check_plan(plan)
    return True


def check_problem(problem: Problem, lines: int) -> None:
    text = str(problem)
    if not text.isprintable() or not problem.text or len(text) > MAX_PROBLEM_TEXT:
        raise AssertionError(f"the text of a problem: {text!r}")
    if not 1 <= problem.line <= lines or problem.file != FILE:
        raise AssertionError(f"{problem.file}:{problem.line} of {lines} lines")


def check_plan(plan: TopologyPlan) -> None:
    """Check that all names that a plan refers to are defined in it."""
    names = {node.name for node in plan.nodes}
    if not names or len(names) != len(plan.nodes):
        raise AssertionError(f"nodes {names}")
    listeners = {listener.id for listener in plan.listeners}
    for link in plan.links:
        if link.node not in names or bool(link.uri) == bool(link.to_listener):
            raise AssertionError(f"{link}")
        if link.to_listener and (link.to_listener not in listeners or link.to_node not in names):
            raise AssertionError(f"{link}")
    for request in plan.requests:
        if request.node not in names or not request.route:
            raise AssertionError(f"{request}")
    for node in plan.nodes:
        for worker in node.workers:
            if bool(worker.kind) == bool(worker.class_path):
                raise AssertionError(f"{worker}")
            if worker.kind and worker.kind not in OPTIONS:
                raise AssertionError(f"{worker}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=10_000, help="inputs to try")
    parser.add_argument("--seed", type=int, default=0, help="what to start the generator with")
    options = parser.parse_args(arguments)
    random = Random(options.seed)
    examples = Path(__file__).resolve().parent.parent / "examples" / "topologies"
    seeds = [FULL, *(file.read_bytes() for file in sorted(examples.glob("*.toml")))]
    started, before, taken = time.perf_counter(), 0, 0
    for number in range(options.count):
        if number == options.count // 10:
            before = resident()
        data = seeds[number] if number < len(seeds) else mutated(random, seeds)
        try:
            taken += check(data)
            if number < len(seeds) and not taken == number + 1:
                raise AssertionError("an example is refused")
        except Exception as error:  # noqa: BLE001 - any is a finding
            print(f"topology: FAILED at input {number}, seed {options.seed}: {error!r}")
            print(f"input {data.hex()}")
            return 1
    grown = resident() - before
    print(
        f"topology: {options.count} inputs, seed {options.seed}: {taken} topologies, "
        f"{options.count - taken} refused, {grown / 1024:.0f} KiB grown, "
        f"{time.perf_counter() - started:.1f} s"
    )
    if grown > MAX_GROWTH:
        print(f"topology: FAILED: over {MAX_GROWTH} bytes grown")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
