"""The three formats of the log."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from onward.cli._log_format import FIELDS, FORMATS, event_of


def record(
    level: int = logging.WARNING, text: str = "hello %s", *arguments: object, **extra: Any
) -> logging.LogRecord:
    made = logging.LogRecord("onward.transports", level, "", 1, text, arguments or ("you",), None)
    made.created = 1_790_000_000.25
    for name, value in extra.items():
        setattr(made, name, value)
    return made


def failed() -> logging.LogRecord:
    made = record()
    try:
        raise ValueError("of\x1b[31m a peer")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_json_is_an_object_on_one_line() -> None:
    line = FORMATS["json"]().format(
        record(event="connection.closed", peer="10.0.0.1:5", reason="too slow", other="unknown")
    )
    assert json.loads(line) == {
        "time": "2026-09-21T14:13:20.250000Z",
        "level": "warning",
        "event": "connection.closed",
        "message": "hello you",
        "peer": "10.0.0.1:5",
        "reason": "too slow",
    }


def test_json_escapes_the_texts_of_peers() -> None:
    line = FORMATS["json"]().format(record(logging.INFO, "%s", "a\nb\x1b\udc80é", peer="a\r\nb"))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["event"] == "onward.transports"
    assert json.loads(FORMATS["json"]().format(failed()))["traceback"].startswith("Traceback")


def test_text_escapes_the_texts_of_peers() -> None:
    line = FORMATS["text"]().format(record(logging.INFO, "%s", "a\nb\x1b"))
    assert line.endswith(r" INFO onward.transports: a\nb\x1b")
    lines = FORMATS["text"]().format(failed()).splitlines()
    assert lines[1] == "Traceback (most recent call last):"
    assert lines[-1] == r"ValueError: of\x1b[31m a peer"


@pytest.mark.parametrize(
    ("level", "priority"),
    [
        (logging.DEBUG, "<7>"),
        (logging.INFO, "<6>"),
        (logging.WARNING, "<4>"),
        (logging.ERROR, "<3>"),
        (logging.CRITICAL, "<2>"),
    ],
)
def test_lines_of_the_journal_have_their_priority(level: int, priority: str) -> None:
    made = failed()
    made.levelno, made.levelname = level, logging.getLevelName(level)
    lines = FORMATS["journal"]().format(made).splitlines()
    assert lines[0] == f"{priority}onward.transports: hello you"
    assert len(lines) > 3
    assert all(line.startswith(priority) for line in lines)


def test_fields_do_not_collide_with_those_of_logging() -> None:
    # `extra=` refuses names that a record has already.
    logging.getLogger("onward.test").info("x", extra=dict.fromkeys((*FIELDS, "event"), "x"))
    assert event_of(record(event=None)) == "onward.transports"


def test_one_process_of_several_has_its_number_in_each_line() -> None:
    assert json.loads(FORMATS["json"](0).format(record()))["process"] == 0
    assert FORMATS["text"](1).format(record()).endswith("WARNING onward.transports[1]: hello you")
    assert FORMATS["journal"](2).format(record()) == "<4>onward.transports[2]: hello you"
