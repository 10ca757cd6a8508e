"""Files of rules: what is read from them, and all that may be wrong with them."""

from __future__ import annotations

import pytest

from onward.protocol.broker import parse_query
from onward.protocol.security import (
    MAX_RULES,
    MAX_RULES_FILE,
    Action,
    Rule,
    parse_patterns,
    read_rules,
)
from onward.protocol.toml import FileError

ORDERS = """
[[rule]]
roles = ["orders"]
register = "service=orders region=*"
request = ["service=stock", "service=mail"]

[[rule]]
names = ["*"]
request = "service=audit"
deny = true

[[rule]]
roles = "operators"
read = true
operate = true
peer = false
"""


def test_a_table_is_a_rule_for_each_text_of_tags() -> None:
    orders, everyone, operators = frozenset({"orders"}), frozenset({"*"}), frozenset({"operators"})
    tags, patterns = parse_patterns("service=orders region=*")
    none = frozenset[str]()
    assert read_rules(ORDERS, "r.toml").rules == (
        Rule(Action.REGISTER, orders, none, tags, patterns, origin="r.toml:2"),
        Rule(Action.REQUEST, orders, none, parse_query("service=stock"), origin="r.toml:2"),
        Rule(Action.REQUEST, orders, none, parse_query("service=mail"), origin="r.toml:2"),
        Rule(Action.REQUEST, none, everyone, parse_query("service=audit"), (), True, "r.toml:7"),
        Rule(Action.READ, operators, none, origin="r.toml:12"),
        Rule(Action.OPERATE, operators, none, origin="r.toml:12"),
    )
    assert read_rules(ORDERS.encode(), "r.toml").rules == read_rules(ORDERS, "r.toml").rules


def problems(text: str | bytes) -> list[str]:
    with pytest.raises(FileError) as caught:
        read_rules(text, "r.toml")
    return str(caught.value).splitlines()


def test_all_problems_are_told_at_once_with_their_lines() -> None:
    text = """
[[rule]]
role = ["orders"]
request = "service=orders"

[[rule]]
roles = ["orders"]
request = ["service=a*b", "service=x"]
deny = 1

[[rule]]
roles = ["ord*"]
names = ["a*b"]
read = true

[[rule]]
roles = ["orders"]

[[rules]]
"""
    assert problems(text) == [
        'r.toml:2: rule[0]: roles or names are missing; names = ["*"] is all',
        (
            "r.toml:3: rule[0].role: unknown key; there are: deny, names, operate, peer, read, "
            "register, request, roles; did you mean 'roles'?"
        ),
        (
            "r.toml:8: rule[1].request: 'service=a*b': a * stands at the end of a value; "
            "write %2A for itself"
        ),
        "r.toml:9: rule[1].deny: 1 is not true or false",
        "r.toml:12: rule[2].roles: 'ord*': roles are without a *; names may end with one",
        "r.toml:13: rule[2].names: 'a*b': a * stands at the end only",
        "r.toml:16: rule[3]: no action; there are: register, request, peer, read, operate",
        "r.toml:19: rules: unknown key; there are: rule; did you mean 'rule'?",
    ]


def test_an_allowing_rule_that_another_denies_is_a_problem() -> None:
    text = """
[[rule]]
roles = ["a", "b"]
request = "service=orders region=eu*"

[[rule]]
roles = ["b", "c"]
request = ["service=mail", "region=eu* service=orders"]
deny = true
"""
    assert problems(text) == [
        (
            "r.toml:2: it allows nothing, as another rule denies it: "
            "deny request region=eu* service=orders (r.toml:6)"
        )
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "r.toml:1: there are no rules; write [[rule]]"),
        ("rule = 1", "r.toml:1: rule: 1 is not a list of tables; write [[rule]]"),
        ("[[rule", "r.toml:1: not TOML"),
        (b"\xff", "r.toml:1: not UTF-8"),
        ("#" * (MAX_RULES_FILE + 1), "over the limit of 1048576"),
        ('[[rule]]\nroles = [""]\nread = true', "'' has not 1 to 255 bytes"),
        (f'[[rule]]\nroles = ["{"x" * 256}"]\nread = true', "has not 1 to 255 bytes"),
        (f"[[rule]]\nroles = {['x'] * 1001}\nread = true", "1001 are over the limit of 1000"),
        (
            f"[[rule]]\nroles = ['x']\nrequest = {['a'] * (MAX_RULES + 1)}",
            "10001 are over the limit of 10000",
        ),
        (
            f"[[rule]]\nroles = ['x']\nrequest = {['a'] * MAX_RULES}\nread = true",
            "10001 rules are over the limit of 10000",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_file_that_cannot_be_used(text: str | bytes, told: str) -> None:
    assert any(told in line for line in problems(text))
