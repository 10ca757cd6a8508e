from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from onward.protocol import (
    MAX_MARK_DEPTH,
    MAX_TRACING,
    Address,
    TraceMark,
    read_tracing,
    reported_trace,
    trace_mark_of,
    tracing_of_report,
    with_trace_mark,
    write_tracing,
)

TRACER = Address(0, b"tracer")
MARK = TraceMark("0123456789abcdef" * 2, "fedcba9876543210", 3, TRACER)
TEXT = "0123456789abcdef0123456789abcdef-fedcba9876543210-3 0#tracer"


def test_a_tracing_text_of_a_rust_node_is_read() -> None:
    assert read_tracing("{}") == {}
    given = {"traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": ""}
    assert read_tracing(json.dumps(given)) == given


@pytest.mark.parametrize(
    "text",
    [
        "",
        "traceparent",
        "[]",
        "null",
        '{"a":1}',
        '{"a":null}',
        '{"a":{}}',
        "[" * 4000,
        '{"a":' * 700,
        '{"a":"\udcff' + "x" * MAX_TRACING + '"}',
        '{"a":"' + "x" * MAX_TRACING + '"}',
        '{"a":"' + "\u20ac" * (MAX_TRACING // 2) + '"}',
    ],
)
def test_a_bad_text_is_as_good_as_none(text: str) -> None:
    assert read_tracing(text) is None


def test_a_text_is_read_up_to_the_limit() -> None:
    longest = '{"a":"' + "x" * (MAX_TRACING - 8) + '"}'
    assert len(longest) == MAX_TRACING
    assert read_tracing(longest) == {"a": "x" * (MAX_TRACING - 8)}
    assert write_tracing({"a": "x" * (MAX_TRACING - 8)}) == longest
    assert write_tracing({"a": "x" * (MAX_TRACING - 7)}) is None


def test_nothing_is_written_as_nothing() -> None:
    assert write_tracing({}) is None


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), min_size=1, max_size=5))
def test_what_is_written_is_read_again(fields: dict[str, str]) -> None:
    text = write_tracing(fields)
    assert text is not None
    assert text.isascii()
    assert read_tracing(text) == fields


def test_a_mark_is_written_beside_what_others_wrote() -> None:
    text = with_trace_mark({"traceparent": "x"}, MARK)
    assert text is not None
    assert json.loads(text) == {"traceparent": "x", "onward": TEXT}
    assert trace_mark_of(json.loads(text)) == MARK
    assert with_trace_mark({"x": "y" * 4050}, MARK) is None


def test_the_next_hop_sees_the_one_before() -> None:
    assert MARK.next("0" * 16) == TraceMark(MARK.trace, "0" * 16, 4, TRACER)


@pytest.mark.parametrize(
    "value",
    [
        "",
        TEXT.upper(),
        TEXT[1:],
        TEXT.replace("-3 ", "-1000 "),
        TEXT.replace("-3 ", f"-{MAX_MARK_DEPTH + 1} "),
        TEXT.replace("-3 ", "- "),
        TEXT.replace("0#tracer", "256#tracer"),
        TEXT.replace("0#tracer", "0#"),
        TEXT.replace("0#tracer", "0#\ud800"),
        TEXT.replace("-3 ", "-\u0663 "),
        "x" + TEXT,
    ],
)
def test_a_bad_mark_is_none(value: str) -> None:
    assert trace_mark_of({"onward": value}) is None


def test_a_text_without_a_mark_has_none() -> None:
    assert trace_mark_of({"traceparent": TEXT}) is None


@given(st.binary(min_size=1, max_size=40), st.integers(0, 255))
def test_a_mark_may_have_any_address(value: bytes, kind: int) -> None:
    mark = TraceMark("0" * 32, "1" * 16, MAX_MARK_DEPTH, Address(kind, value))
    assert trace_mark_of({"onward": str(mark)}) == mark


def test_a_report_says_which_trace_it_is_of() -> None:
    fields = read_tracing(tracing_of_report("ab" * 16))
    assert fields is not None
    assert reported_trace(fields) == "ab" * 16
    assert trace_mark_of(fields) is None


@pytest.mark.parametrize("value", ["", "ab" * 15, "AB" * 16, "ab" * 17])
def test_a_report_of_no_trace(value: str) -> None:
    assert reported_trace({"onward.report": value}) is None
    assert reported_trace({}) is None
