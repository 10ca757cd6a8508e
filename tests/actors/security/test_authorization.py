"""The authorization of a broker: rules that may be replaced, and plug-ins beside them."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from onward.actors.security import (
    Authorization,
    AuthorizationOptions,
    Authorizer,
    _authorization,
    load_authorizer,
)
from onward.protocol.broker import TagList, TagSet, parse_query
from onward.protocol.security import Action, NotAllowed, Principal, Rules, read_rules

RULES = """
[[rule]]
roles = ["shop"]
register = "service=shop region=*"
request = ["service=orders"]

[[rule]]
names = ["*"]
request = "service=audit"
deny = true
"""
SHOP = Principal("shop-1", "token", frozenset({"shop"}))
TENANT = Principal("shop-a", "token", frozenset({"shop"}), parse_query("tenant=a"))
SERVICE, ROUTE_ID, REGION = 1, 2, 6
ME = bytes(15) + b"\x01"


class Policy(Authorizer):
    """An authorizer with one answer, which counts how often it is asked."""

    def __init__(self, answer: bool | None) -> None:
        self.answer = answer
        self.asked = 0

    def allows(self, principal: Principal, action: Action, tags: TagSet) -> bool | None:
        self.asked += 1
        return self.answer


class Unsure(Authorizer):
    """An authorizer with an answer that is none, as of one that is asynchronous by mistake."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def allows(self, principal: Principal, action: Action, tags: TagSet) -> Any:
        return self.answer


class Broken(Authorizer):
    def allows(self, principal: Principal, action: Action, tags: TagSet) -> bool | None:
        raise RuntimeError("no policy")


def of(*authorizers: Authorizer, **options: Any) -> Authorization:
    return Authorization(read_rules(RULES), authorizers, **options)


def test_rules_decide_and_denials_are_counted() -> None:
    made = of()
    assert made.allows(SHOP, Action.REQUEST, parse_query("service=orders"))
    made.check(SHOP, Action.REQUEST, parse_query("service=orders"))
    with pytest.raises(NotAllowed, match=r"^not allowed: request$"):
        made.check(SHOP, Action.REQUEST, parse_query("region=eu"))
    with pytest.raises(NotAllowed, match=r"^not allowed: read$"):
        made.check(SHOP, Action.READ)
    assert str(made.denial(Action.REQUEST, "service=x")) == "not allowed: request service=x"
    figures = made.statistics()
    assert figures.denied == {"request": 2, "read": 1}
    assert (figures.rules, figures.replaced, figures.failures) == (3, 0, 0)
    assert made.lasting


@pytest.mark.parametrize(
    ("principal", "service", "tags", "registered"),
    [
        (SHOP, "shop", (), ()),
        (SHOP, "shop", ((REGION, "eu"),), ((REGION, "eu"),)),
        (SHOP, "shop", ((SERVICE, "shop"),), ((SERVICE, "shop"),)),
        (SHOP, "shop", ((ROUTE_ID, ME.hex()),), ((ROUTE_ID, ME.hex()),)),
        (SHOP, "orders", (), None),
        (SHOP, "shop", (("tenant", "a"),), None),
        (SHOP, "shop", ((SERVICE, "orders"),), None),
        (SHOP, "shop", ((ROUTE_ID, bytes(16).hex()),), None),
        (TENANT, "shop", (), (("tenant", "a"),)),
        (TENANT, "shop", (("tenant", "a"),), (("tenant", "a"),)),
        (TENANT, "shop", ((REGION, None),), (("tenant", "a"), (REGION, None))),
        (TENANT, "shop", (("tenant", "b"),), None),
        (TENANT, "shop", (("tenant", "a"), ("tenant", "b")), None),
        (TENANT, "shop", (("tenant", None),), None),
    ],
)
def test_a_destination_gets_the_forced_tags_of_its_principal(
    principal: Principal, service: str, tags: TagList, registered: TagList | None
) -> None:
    made = of()
    assert made.may_register(principal, service, tags, ME) == (registered is not None)
    if registered is None:
        with pytest.raises(NotAllowed, match=r"^not allowed: register$"):
            made.registration(principal, service, tags, ME)
        assert made.statistics().denied == {"register": 1}
    else:
        assert made.registration(principal, service, tags, ME) == registered


def test_a_rule_with_a_forced_tag_denies_a_registration() -> None:
    rules = """
    rule = [
        {roles = ["shop"], register = "service=*"},
        {names = ["*"], register = "service=admin tenant=a", deny = true},
    ]
    """
    made = Authorization(read_rules(rules))
    assert made.may_register(TENANT, "shop", (), ME)
    assert not made.may_register(TENANT, "admin", (), ME)
    other = Principal("shop-b", "token", frozenset({"shop"}), parse_query("tenant=b"))
    assert made.may_register(other, "admin", (), ME)


async def _allows() -> bool:
    return True


@pytest.mark.parametrize("answer", ["deny", [], 1, _allows])
def test_an_answer_of_an_authorizer_that_is_none_denies(answer: object) -> None:
    made = of(Unsure(answer() if callable(answer) else answer))
    assert not made.allows(SHOP, Action.REQUEST, parse_query("service=orders"))
    assert made.statistics().failures == 1


def test_what_a_principal_may_see_is_what_it_may_request() -> None:
    made = of()
    orders = parse_query("service=orders tenant=a region=eu")
    assert made.may_see(SHOP, orders)
    assert made.may_see(TENANT, orders)
    assert not made.may_see(TENANT, parse_query("service=orders tenant=b"))
    assert not made.may_see(SHOP, parse_query("service=audit"))
    reader = Principal("ops", "token", frozenset({"ops"}))
    assert not made.may_see(reader, orders)
    made.replace(read_rules("rule = [{roles = ['ops'], read = true}]"))
    assert made.may_see(reader, parse_query("service=audit"))


def test_other_rules_are_in_force_at_once() -> None:
    made, heard = of(), list[int]()
    forget = made.on_replace(lambda: heard.append(len(made.rules)))
    made.replace(Rules())
    assert heard == [0]
    assert not made.allows(SHOP, Action.REQUEST, parse_query("service=orders"))
    forget()
    made.replace(read_rules(RULES))
    assert heard == [0]
    assert made.allows(SHOP, Action.REQUEST, parse_query("service=orders"))
    assert made.statistics().replaced == 2


@pytest.mark.parametrize(
    ("answers", "orders", "mail", "audit"),
    [
        ([None], True, False, False),
        ([True], True, True, False),
        ([False], False, False, False),
        ([True, False], False, False, False),
        ([None, True], True, True, False),
    ],
)
def test_authorizers_allow_and_deny_beside_the_rules(
    answers: list[bool | None], orders: bool, mail: bool, audit: bool
) -> None:
    made = of(*map(Policy, answers))
    assert not made.lasting
    for service, expected in (("orders", orders), ("mail", mail), ("audit", audit)):
        asked = parse_query(f"service={service}")
        assert made.allows(SHOP, Action.REQUEST, asked) == expected
        assert made.decide(SHOP, Action.REQUEST, asked).allowed == expected


def test_an_authorizer_that_fails_denies(caplog: pytest.LogCaptureFixture) -> None:
    made = of(Broken(), Policy(True))
    assert not made.allows(SHOP, Action.REQUEST, parse_query("service=orders"))
    assert made.statistics().failures == 1
    assert "an authorizer has failed, and request is denied" in caplog.text


def test_answers_are_kept_for_a_while() -> None:
    now, policy = [0.0], Policy(True)
    made = of(policy, clock=lambda: now[0])
    mail, many = (
        parse_query("service=mail"),
        parse_query("service=mail " + "a b c d e f g h i j k l m n o p"),
    )
    for _ in range(3):
        assert made.allows(SHOP, Action.REQUEST, mail)
    assert policy.asked == 1
    assert made.allows(TENANT, Action.REQUEST, mail)
    assert policy.asked == 2
    now[0] = 10.0
    policy.answer = None
    assert not made.allows(SHOP, Action.REQUEST, mail)
    assert policy.asked == 3
    made.replace(read_rules(RULES))
    made.allows(SHOP, Action.REQUEST, mail)
    assert policy.asked == 4
    # A question with many tags would take much memory.
    made.allows(SHOP, Action.REQUEST, many)
    made.allows(SHOP, Action.REQUEST, many)
    assert policy.asked == 6


def test_the_oldest_answer_is_forgotten_at_the_limit() -> None:
    policy = Policy(True)
    made = of(policy, options=AuthorizationOptions(max_answers=2))
    for service in ("a", "b", "c", "b", "c", "a"):
        made.allows(SHOP, Action.REQUEST, parse_query(f"service={service}"))
    assert policy.asked == 4


def none_installed(group: str) -> list[EntryPoint]:
    return []


def test_authorizers_are_loaded_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(group: str) -> list[EntryPoint]:
        made = {"cedar": "Broken", "text": "RULES.upper"}
        return [EntryPoint(name, f"{__name__}:{value}", group) for name, value in made.items()]

    monkeypatch.setattr(_authorization, "entry_points", installed)
    assert isinstance(load_authorizer("cedar"), Authorizer)
    with pytest.raises(TypeError, match="the plug-in 'text' makes str, which is no Authorizer"):
        load_authorizer("text")
    with pytest.raises(ValueError, match="'opa'; there are: cedar, text"):
        load_authorizer("opa")
    monkeypatch.setattr(_authorization, "entry_points", none_installed)
    with pytest.raises(ValueError, match="there are: none is installed"):
        load_authorizer("opa")
