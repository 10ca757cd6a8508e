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
def test_the_usage_is_that_of_the_command(
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
