"""`onward resolve`."""

from __future__ import annotations

import json

import pytest

from onward.cli import main
from onward.cli._resolve import show
from onward.cli._status import CommandError, Status
from tests.support.fixtures import Capsys


def test_it_says_where_a_request_would_go(broker: str, capsys: Capsys) -> None:
    assert main(["resolve", "service=store", "--broker", broker]) == Status.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "service=store  (unicast, by round-robin)"
    assert lines[1] == "1 of 2 destinations matching"
    assert lines[4].startswith("=> ")
    assert lines[4].split()[2:5] == ["store", "region=eu", "local"]
    assert lines[-1].split()[1:] == ["onward.management", "has", "service=onward.management"]


def test_it_says_what_is_missing(broker: str, capsys: Capsys) -> None:
    words = ["service=store", "region=us", "zone=1"]
    assert main(["resolve", *words, "--broker", broker]) == Status.FAILED
    out, err = capsys.readouterr()
    assert err == "onward resolve: no destination matches\n"
    lines = out.splitlines()
    assert lines[1] == "0 of 2 destinations matching: it would be rejected"
    assert lines[5].split()[1:] == ["store", "no", "zone=1,", "has", "region=eu"]


@pytest.mark.parametrize(
    ("words", "query", "how"),
    [
        (["--multicast"], "@multicast service=store user=7", "multicast"),
        (["--sticky", "user"], "@sticky=user service=store user=7", "unicast, by round-robin"),
        (["--shard", "user"], "@shard=user service=store user=7", "shard, by rendezvous"),
        (
            ["--shard", "user", "--method", "jump"],
            "@shard=user @method=jump service=store user=7",
            "shard, by jump",
        ),
    ],
)
def test_each_question(words: list[str], query: str, how: str, broker: str, capsys: Capsys) -> None:
    command = ["resolve", "service=store", "user=7", *words, "--broker", broker]
    # The tag that chooses is not asked for; of all that carry it there are none.
    assert main(command) == (Status.FAILED if words == ["--multicast"] else Status.OK)
    assert capsys.readouterr().out.splitlines()[0] == f"{query}  ({how})"


def test_a_method_that_the_broker_does_not_know(broker: str, capsys: Capsys) -> None:
    words = ["service=store", "--method", "foo"]
    assert main(["resolve", *words, "--broker", broker]) == Status.OK
    assert "the broker does not know the method foo" in capsys.readouterr().out


def test_it_prints_json(broker: str, capsys: Capsys) -> None:
    assert main(["resolve", "service=store", "--json", "--broker", broker]) == Status.OK
    found = json.loads(capsys.readouterr().out)
    assert found["next"] == found["matching"][0]["route"]


@pytest.mark.parametrize(
    "words",
    [["--shard", "user", "service=a"], ["service=%zz"], ["--multicast", "--method=x", "service=a"]],
)
def test_what_cannot_be_read_has_status_2(words: list[str], capsys: Capsys) -> None:
    assert main(["resolve", *words, "--broker", "rsocket+tcp://127.0.0.1:1"]) == Status.USAGE
    assert capsys.readouterr().err.startswith("onward resolve: ")


@pytest.mark.parametrize("answer", [5, {}, [], None, {"matches": "x", "matching": ()}])
def test_an_answer_that_is_none(answer: object) -> None:
    with pytest.raises(CommandError, match="is not one to a resolve request"):
        show(answer)


def test_what_the_broker_says_is_wrong() -> None:
    with pytest.raises(CommandError, match=r"the broker says: no\\nway"):
        show({"error": "no\nway"})


def test_what_there_is_no_room_for() -> None:
    found: dict[str, object] = {
        "query": "service=a",
        "routing": "multicast",
        "method": "",
        "next": None,
        "matching": [],
        "others": [],
        "matches": 7,
        "routes": 9,
    }
    assert show(found).splitlines() == [
        "service=a  (multicast)",
        "7 of 9 destinations matching",
        "   ... and 7 more",
    ]


ROW: dict[str, object] = {
    "route": "r",
    "service": "a",
    "tags": {},
    "peer": "p",
    "outstanding": 0,
    "requests": 0,
    "latency": 0.0,
    "busy": False,
    "since": 1_700_000_000.0,
}


@pytest.mark.parametrize(
    ("answer", "how", "but", "marks"),
    [
        ({"next": "r1", "sticky": True}, "unicast, by own; its key is known", "", " =>"),
        (
            {"next": None, "first_use": True},
            "unicast, by own",
            "; the method decides on the first use of the sticky key",
            "  ",
        ),
        ({"next": None}, "unicast, by own", "; the choice is random", "  "),
        ({"routing": "multicast", "method": "", "next": None}, "multicast", "", "=>=>"),
    ],
)
def test_who_gets_it(answer: dict[str, object], how: str, but: str, marks: str) -> None:
    found: dict[str, object] = {
        "query": "service=a",
        "routing": "unicast",
        "method": "own",
        "sticky": False,
        "matching": [{**ROW, "route": "r0"}, {**ROW, "route": "r1"}],
        "others": [],
        "matches": 2,
        "routes": 2,
        **answer,
    }
    lines = show(found).splitlines()
    assert lines[:2] == [f"service=a  ({how})", f"2 of 2 destinations matching{but}"]
    assert "".join(each[:2].strip() or " " for each in lines[4:]) == marks


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({}, ": it would wait for one, or be rejected"),
        ({"wait": 0.0, "expected": False}, ": it would be rejected"),
        ({"wait": 0.5, "expected": False}, ": it would wait 0.5 s for one"),
        ({"wait": 60.0, "expected": True}, ", but one that is expected does: it would wait 60 s"),
        ({"wait": 0.0, "expected": True}, ", but one that is expected does: it would be rejected"),
    ],
)
def test_the_outcome_of_a_request_without_destination(more: dict[str, object], told: str) -> None:
    nobody: dict[str, object] = {
        "query": "service=a",
        "routing": "unicast",
        "method": "",
        "next": None,
        "matching": [],
        "others": [],
        "matches": 0,
        "routes": 2,
    }
    assert f"0 of 2 destinations matching{told}" in show({**nobody, **more})
