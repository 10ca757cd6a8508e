"""The kinds of worker that show what comes."""

from __future__ import annotations

from onward.actors import Node
from onward.actors.topology import Print, Record
from tests.support.fixtures import Capsys


async def test_a_record_keeps_what_comes_and_says_it_elsewhere(node: Node) -> None:
    await node.start(lambda: Record(limit=2), address=["seen", "seen.list"])
    for payload in (b"a", b"b", b"c"):
        node.send("seen", payload)
    assert (await node.request("seen.list", b"")).payload == b"b\nc"


async def test_print_prints(capsys: Capsys) -> None:
    async with Node() as node:
        await node.start(Print, address="out")
        node.send("out", b"one\xff")
        node.send("out", b"\x1b[2Jtwo\nthree")
        await node.stop_worker("out")
    assert capsys.readouterr().out == "out: one\\xff\nout: \\x1b[2Jtwo\\nthree\n"
