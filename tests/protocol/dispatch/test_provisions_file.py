"""Files of provisions: what they say, and all that is wrong with one."""

from __future__ import annotations

import pytest

from onward.protocol.dispatch import (
    DispatchLimits,
    RoutingPattern,
    Semantics,
    read_provisions,
)
from onward.protocol.toml import FileError
from tests.protocol.dispatch.page import PAGE, code, rows


def problems_of(text: str, limits: DispatchLimits | None = None) -> list[str]:
    with pytest.raises(FileError) as caught:
        read_provisions(text, "f", limits or DispatchLimits())
    return str(caught.value).split("\n")


def test_the_file_of_the_page() -> None:
    text = PAGE.read_text().split("```toml\n# file of provisions\n")[1].split("```")[0]
    found = read_provisions(text, "names.toml")
    assert found.default == Semantics(pattern=RoutingPattern.UNAVAILABLE)
    expected = {code(row[0])[0]: code(row[1])[0] for row in rows("| name | semantics |")}
    assert {str(each.pattern): str(each.semantics) for each in found.provisions} == expected
    assert {each.source for each in found.provisions} == {"names.toml"}
    assert found.provisions[0].line == 3


def test_an_empty_file() -> None:
    assert read_provisions(b"").provisions == ()
    assert read_provisions("").default is None


def test_a_table_as_default() -> None:
    found = read_provisions('[default]\nrouting = "closest"\nweigh = "load"\n')
    assert str(found.default) == "closest by load"


def test_roles_and_accepts() -> None:
    found = read_provisions(
        '[[name]]\npattern = "a"\nrouting = "multicast"\naccepts = 2\nproducers = "x"'
    )
    assert str(found.provisions[0].semantics) == "multicast, 2 accept, producers x"


FAULTY = """\
default = "directt"
[[name]]
pattern = "a"
prefix = "b"
[[name]]
routing = "direct"
accepts = 0
[[name]]
pattern = "a..#"
second = "newest"
gate = "credit"
tags = "service=x"
[[name]]
pattern = "c"
windw = 3
deadline = 0
[[name]]
pattern = "/."
[[name]]
pattern = "d.#.*"
[[name]]
pattern = "d/*/#"
[[name]]
pattern = "_temp/x"
[[name]]
pattern = "e"
undeliverable = [{ redirect = "34#e" }]
[[name]]
pattern = "g"
undeliverable = [{ redirect = "999#x" }, { hold = 3, agee = 2 }, { age = 3 }]
[[name]]
pattern = "h"
undeliverable = [{ hold = 3 }, { hold = 3 }]
[[name]]
pattern = "i"
producers = [1]
undeliverable = [{ hold = 3, first = 5, longest = 2 }]
more = 1
"""


def test_all_faults_at_once() -> None:
    assert [line[:85] for line in problems_of(FAULTY)] == [
        "f:1: default: 'directt' is not one of direct, closest, balanced, multicast, unavailab",
        "f:2: name[0]: pattern and prefix exclude each other",
        "f:5: name[1]: pattern or prefix is missing",
        "f:7: name[1].accepts: 0 is not a whole number of at least 1",
        "f:8: name[2]: a rule for a second consumer needs the pattern direct: others take any ",
        "f:8: name[2]: the consumers that a query of tags matches give no credit that a gate c",
        "f:15: name[3].windw: unknown key; there are: accepts, consumers, deadline, deduplicat",
        "f:16: name[3].deadline: 0 is not a number of seconds, more than 0",
        "f:18: name[4].pattern: there is no token",
        "f:21: name[6]: d/*/# is in line 19 already",
        "f:23: name[7]: names with _temp/ cannot be provisioned",
        "f:25: name[8]: e is redirected to itself",
        "f:30: name[9].undeliverable[0]: a redirect cannot be read: bad address '999#x': the t",
        "f:30: name[9].undeliverable[1].agee: unknown key; there are: age, disk, first, hold, ",
        "f:30: name[9].undeliverable[2]: hold is missing",
        "f:31: name[10]: the chain of what is undeliverable has more than one retry",
        "f:36: name[11].producers: 1 is not text",
        "f:37: name[11].undeliverable[0]: the longest time of a retry, 2 s, is less than the f",
        "f:38: name[11].more: unknown key; there are: accepts, consumers, deadline, deduplicat",
    ]
    assert "did you mean 'window'?" in problems_of(FAULTY)[6]


def test_too_many() -> None:
    text = '[[name]]\npattern = "a"\n[[name]]\npattern = "b"\n'
    assert problems_of(text, DispatchLimits(max_provisions=1)) == [
        "f:1: name: 2 provisions are over the limit of 1"
    ]
    assert problems_of(text.replace("b", "b.c"), DispatchLimits(max_tokens=1)) == [
        "f:4: name[1].pattern: 2 tokens are over the limit of 1"
    ]


def test_not_toml() -> None:
    assert len(problems_of("[[name]")) == 1
    assert problems_of("name = 3") == ["f:1: name: 3 is not a list of tables; write [[name]]"]
