"""What is wrong on the command line is told with the usage of the command at hand."""

from __future__ import annotations

import pytest

from onward.cli import main


@pytest.mark.parametrize(
    ("words", "usage"),
    [
        (("resolve", "service=shop", "--shard", "user", "user=7"), "usage: onward resolve [-h]"),
        (("resolve", "service=shop", "--nonsense"), "usage: onward resolve [-h]"),
        (("request", "echo", "hi", "--nonsense"), "usage: onward request [-h]"),
        (("node", "more"), "usage: onward node [-h]"),
        (
            ("pipeline", "ingest", "--log", "a", "--lake", "b", "--checkpoint", "c", "--nonsense"),
            "usage: onward pipeline ingest [-h]",
        ),
        (("--nonsense",), "usage: onward [-h]"),
    ],
)
def test_usage_errors(
    words: tuple[str, ...], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(usage)


def test_words_are_taken_in_any_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    for word in ("sealed", "never-ever"):
        with pytest.raises(SystemExit):
            main(["broker", "--event-log-fsync", word])
        assert "invalid choice" in capsys.readouterr().err
    for given in (["--shard-method", "bounded_ring"], ["--multicast-on-leave", "ERROR"]):
        with pytest.raises(SystemExit):
            main(["broker", *given, "--nonsense"])
        assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("send", "f -> echo", "hi"), "write `f => echo`"),
        (("request", "tcp://h:1 => echo", "hi"), "write `1#h:1 => echo`"),
        (("trace", "127.0.0.1:1 => echo"), "write `1#127.0.0.1:1 => echo`"),
        (("node", "--expose", "echo, relay"), "'=>' stands between the addresses of a route"),
    ],
)
def test_a_usual_mistake_in_a_route_is_told_with_the_right_form(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_an_ipv6_host_without_brackets_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["request", "1#::1:4000 => echo", "hi"]) == 2
    assert "an IPv6 host has brackets: [::1]:4000" in capsys.readouterr().err
