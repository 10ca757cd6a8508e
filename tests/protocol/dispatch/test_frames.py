"""Frames between neighbours: those of the page, every input whole, cut short and with more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cbor2 import dumps
from hypothesis import given, strategies as st

from onward.protocol.dispatch import (
    ENDED_INSTANCE,
    MAX_COST,
    MAX_FRAME,
    MAX_HINT,
    MAX_NUMBER,
    Advertisement,
    LaterVersion,
    LinksRequest,
    LinksUpdate,
    ListChange,
    ListKind,
    ListPart,
    ListRequest,
    NetworkFrame,
    NetworkFrameError,
    NodeHello,
    NodeLinks,
    NodeNumbers,
    RoutingPattern,
    Second,
    Semantics,
    ToldName,
    decode_network_frame,
    encode_network_frame,
    encode_semantics,
    in_frames,
    list_item,
)
from onward.protocol.dispatch._frame_codec import read_change_head

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "protocol-dispatch.md"
VECTORS = {
    name: bytes.fromhex(text)
    for name, text in re.findall(
        r"<!-- vector: ([\w-]+) -->\n```text\n(.*?)```",
        PAGE.read_text().partition("## Between neighbours")[2],
        re.DOTALL,
    )
}
NAMES, PROVISIONS = ListKind
DIRECT = Semantics(pattern=RoutingPattern.DIRECT, second=Second.STANDBY, window=50)
INSTANCE = 1_764_355_200_000
FRAMES: dict[str, NetworkFrame] = {
    "hello": NodeHello("b", INSTANCE, 0x1234ABCD, ("a",)),
    "last-hello": NodeHello("b", ENDED_INSTANCE, 0),
    "advertisement": Advertisement(
        (NodeNumbers("a", INSTANCE, 7, 2, 3, 1), NodeNumbers("b", INSTANCE, 1, 1, 0, 0))
    ),
    "links-request": LinksRequest(("a", "c")),
    "links-update": LinksUpdate(
        (NodeLinks("a", INSTANCE, 2, {"b": 1, "c": 10}), NodeLinks("c", INSTANCE, 1, {"a": 10}))
    ),
    "names-change": ListChange(
        NAMES, "a", INSTANCE, 3, {"orders": ToldName(0, INSTANCE + 5000)}, ("_eu/prices",)
    ),
    "names-request": ListRequest(NAMES, "a", INSTANCE),
    "names-part": ListPart(
        NAMES, "a", INSTANCE, 3, 0, True, {"orders": ToldName(0, INSTANCE + 5000), "x": ToldName(2)}
    ),
    "provisions-change": ListChange(
        PROVISIONS, "a", INSTANCE, 1, {"orders": encode_semantics(DIRECT)}, ("prices.#",)
    ),
    "provisions-request": ListRequest(PROVISIONS, "a", INSTANCE),
    "provisions-part": ListPart(
        PROVISIONS, "a", INSTANCE, 1, 0, True, {"orders": encode_semantics(DIRECT)}
    ),
}
each_frame = pytest.mark.parametrize("name", FRAMES)


@each_frame
def test_a_frame_has_the_bytes_of_the_page(name: str) -> None:
    assert encode_network_frame(FRAMES[name]) == VECTORS[name]
    assert decode_network_frame(VECTORS[name]) == FRAMES[name]


@each_frame
def test_no_beginning_of_a_frame_is_one(name: str) -> None:
    data = VECTORS[name]
    for size in range(len(data)):
        with pytest.raises(NetworkFrameError):
            decode_network_frame(data[:size])


@each_frame
def test_nothing_may_follow_a_frame(name: str) -> None:
    for more in (b"\0", b"\xff", VECTORS[name]):
        with pytest.raises(NetworkFrameError, match="behind the item"):
            decode_network_frame(VECTORS[name] + more)


@each_frame
def test_a_later_version_is_told_from_a_bad_frame(name: str) -> None:
    data = VECTORS[name]
    with pytest.raises(LaterVersion, match="version 2 is later than 1") as caught:
        decode_network_frame(data[:1] + b"\2" + data[2:] + b"whatever follows")
    assert caught.value.version == 2
    for version in (0, 24, 255):
        with pytest.raises(NetworkFrameError, match="no version"):
            decode_network_frame(data[:1] + bytes([version]) + data[2:])


@each_frame
def test_the_head_of_a_change_is_read_by_itself(name: str) -> None:
    frame, data = FRAMES[name], VECTORS[name]
    wanted = None
    if isinstance(frame, ListChange):
        wanted = frame.kind, frame.node, frame.instance, frame.number
    assert read_change_head(data) == wanted
    found = {read_change_head(data[:size]) for size in range(len(data))}
    assert found <= {None, wanted}


@pytest.mark.parametrize("node", ["n" * 23, "n" * 24, "n" * 64])
@pytest.mark.parametrize("number", [1, 24, 256, 65_536, MAX_NUMBER])
def test_the_head_of_a_change_has_any_length(node: str, number: int) -> None:
    data = encode_network_frame(ListChange(NAMES, node, number, number, {}))
    assert read_change_head(data) == (NAMES, node, number, number)


@pytest.mark.parametrize(
    "head",
    [(2, "a", 1, 1), (0, b"a", 1, 1), (0, "a", "b", 1), (0, "a", 1, None), (0, 5, 1, 1)],
)
def test_what_is_no_head_of_a_change_is_left_to_the_decoder(head: tuple[object, ...]) -> None:
    data = dumps((1, 5, *head, (), ()))
    assert read_change_head(data) is None
    with pytest.raises(NetworkFrameError):
        decode_network_frame(data)


def test_a_node_of_a_change_is_utf_8() -> None:
    data = encode_network_frame(ListChange(NAMES, "aa", 1, 1, {}))
    assert read_change_head(data.replace(b"aa", b"\xffa")) is None


BAD: list[tuple[tuple[object, ...], str]] = [
    ((1, 0, 0), "no such kind"),
    ((1, 8, 0), "no such kind"),
    ((1, 1, "a", 1, 1), "5 items, not 6"),
    ((1, 1, "", 1, 1, []), "of 1 to 64 characters"),
    ((1, 1, "all", 1, 1, []), "cannot be called"),
    ((1, 1, "a" * 65, 1, 1, []), "of 1 to 64 characters"),
    ((1, 1, 5, 1, 1, []), "without a name"),
    ((1, 1, "a/b", 1, 1, []), "without a '/'"),
    ((1, 1, "a\n", 1, 1, []), "printable"),
    ((1, 1, "a", -1, 1, []), "none from 0"),
    ((1, 1, "a", True, 1, []), "none from 0"),
    ((1, 1, "a", MAX_NUMBER + 1, 1, []), "none from 0"),
    ((1, 1, "a", 1, 1, "b"), "where a list has to be"),
    ((1, 1, "a", 1, 1, [f"n{number}" for number in range(17)]), "more than 16"),
    ((1, 2, [["a", 1, 1, 1, 1]]), "a list of 5, not of 6"),
    ((1, 2, ["a"]), "where a list has to be"),
    ((1, 2, [["a", 1, 1, 1, 1, 1]] * 2), "twice"),
    ((1, 3, ["a", "a"]), "twice"),
    ((1, 3, [f"n{number}" for number in range(129)]), "more than 128"),
    ((1, 4, [["a", 1, 0, []]]), "none from 1"),
    ((1, 4, [["a", 1, 1, []]] * 2), "twice"),
    ((1, 4, [["a", 1, 1, [["b", 0]]]]), "none from 1"),
    ((1, 4, [["a", 1, 1, [["b", -5]]]]), "none from 1"),
    ((1, 4, [["a", 1, 1, [["b", MAX_COST + 1]]]]), "none from 1"),
    ((1, 4, [["a", 1, 1, [["b", 1], ["b", 2]]]]), "twice"),
    ((1, 4, [["a", 1, 1, [[f"n{number}", 1] for number in range(241)]]]), "more than 240"),
    ((1, 5, 0, "a", 1, 1, [["x", 0, 0]], ["x"]), "twice"),
    ((1, 5, 0, "a", 1, 1, [], ["x", "x"]), "twice"),
    ((1, 5, 0, "a", 1, 1, [["x", 0, 0], ["x", 1, 0]], []), "twice"),
    ((1, 5, 0, "a", 1, 0, [], []), "none from 1"),
    ((1, 5, 2, "a", 1, 1, [], []), "none from 0 to 1"),
    ((1, 5, True, "a", 1, 1, [], []), "none from 0 to 1"),
    ((1, 5, 0, "a", 1, 1, [["x" * 513, 0, 0]], []), "over the limit of 512"),
    ((1, 5, 0, "a", 1, 1, [["x", MAX_HINT + 1, 0]], []), "none from 0 to 255"),
    ((1, 5, 0, "a", 1, 1, [["x", "2", 0]], []), "none from 0 to 255"),
    ((1, 5, 0, "a", 1, 1, [["x", 0, -1]], []), "none from 0"),
    ((1, 5, 0, "a", 1, 1, [["x", b"s"]], []), "a list of 2, not of 3"),
    ((1, 5, 0, "a", 1, 1, [[5, 0, 0]], []), "no text"),
    ((1, 5, 0, "a", 1, 1, [["_local/x", 0, 0]], []), "not told of"),
    ((1, 5, 0, "a", 1, 1, [["_temp/b/x", 0, 0]], []), "not told of"),
    ((1, 5, 0, "a", 1, 1, [["_topo/b/x", 0, 0]], []), "not told of"),
    ((1, 5, 0, "a", 1, 1, [], ["_topo/all/x"]), "not told of"),
    ((1, 5, 0, "a", 1, 1, [["amqp://h/x", 0, 0]], []), "with a scheme"),
    ((1, 5, 0, "a", 1, 1, [["", 0, 0]], []), "no name"),
    ((1, 5, 1, "a", 1, 1, [["x", 0, 0]], []), "a list of 3, not of 2"),
    ((1, 5, 1, "a", 1, 1, [["x", b""]], []), "1 to 2048 bytes"),
    ((1, 5, 1, "a", 1, 1, [["x", bytes(2049)]], []), "1 to 2048 bytes"),
    ((1, 5, 1, "a", 1, 1, [["x", "s"]], []), "1 to 2048 bytes"),
    ((1, 5, 1, "a", 1, 1, [["a/b", b"s"]], []), "normal form"),
    ((1, 5, 1, "a", 1, 1, [["_local.#", b"s"]], []), "not told of"),
    ((1, 5, 1, "a", 1, 1, [], [".."]), "no token"),
    ((1, 7, 0, "a", 1, 1, 0, 1, []), "neither the last"),
]


@pytest.mark.parametrize(("frame", "reason"), BAD)
def test_a_bad_frame_has_a_reason(frame: tuple[object, ...], reason: str) -> None:
    with pytest.raises(NetworkFrameError, match=reason) as caught:
        decode_network_frame(dumps(frame))
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x82\1\1",
        b"\x9f\1\1\xff",
        b"\xa3\1\1\1\1\1\1",
        b"\x98\x18\1\1",
        b"\x83\1\2\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x83\1\2\xc1\x80",
    ],
)
def test_what_is_no_array_or_announces_too_much_is_refused(data: bytes) -> None:
    with pytest.raises(NetworkFrameError):
        decode_network_frame(data)


def test_a_frame_has_a_limit() -> None:
    with pytest.raises(NetworkFrameError):
        decode_network_frame(b"\x83\1\3" + dumps(["a"] * MAX_FRAME))


@given(st.binary(max_size=60))
def test_whatever_comes_is_a_frame_or_a_documented_error(data: bytes) -> None:
    for start in (b"", b"\x83\1\2", b"\x83\1\4", b"\x88\1\5\1"):
        try:
            frame = decode_network_frame(start + data)
        except (NetworkFrameError, LaterVersion):
            continue
        assert decode_network_frame(encode_network_frame(frame)) == frame


def test_long_lists_are_divided_among_frames() -> None:
    names = {f"{number:0500}": ToldName(255, MAX_NUMBER) for number in range(300)}
    parts = list(in_frames(names.items(), list_item))
    assert len(parts) > 4
    assert [pair for part in parts for pair in part] == list(names.items())
    for number, part in enumerate(parts):
        frame = ListPart(NAMES, "n" * 64, MAX_NUMBER, MAX_NUMBER, number, False, dict(part))
        assert len(encode_network_frame(frame)) <= MAX_FRAME
    assert list(in_frames(())) == [[]]
    assert list(in_frames([1, 2])) == [[1, 2]]


def test_the_most_neighbours_fit_into_one_frame() -> None:
    peers = {f"{number:03}" + "\U0001f600" * 61: MAX_COST for number in range(240)}
    frame = LinksUpdate((NodeLinks("\U0001f600" * 64, MAX_NUMBER, MAX_NUMBER, peers),))
    assert len(encode_network_frame(frame)) <= MAX_FRAME
    assert decode_network_frame(encode_network_frame(frame)) == frame
