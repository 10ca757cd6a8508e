"""Rules: what a principal may do, by its roles and names and by tags."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, strategies as st

from onward.protocol import AddressError
from onward.protocol.broker import TagSet, parse_query
from onward.protocol.security import (
    MAX_NAME_PATTERNS,
    MAX_RULES,
    Action,
    NotAllowed,
    Principal,
    Rule,
    Rules,
    TagPattern,
    add_forced_tags,
    parse_patterns,
)

SHOP = Principal("shop-1", "token", frozenset({"shop"}))
NO_TAGS: TagSet = frozenset()
EVERY_ACTION = list(Action)


def rule(
    action: Action, tags: str = "", *, deny: bool = False, role: str = "shop", names: str = ""
) -> Rule:
    exact, patterns = parse_patterns(tags) if tags else (NO_TAGS, ())
    roles = frozenset({role} if role else ())
    return Rule(action, roles, frozenset(names.split()), exact, patterns, deny)


def allows(action: Action, tags: str, *rules: Rule, principal: Principal = SHOP) -> bool:
    asked: TagSet = parse_query(tags) if tags else frozenset()
    compiled = Rules(rules)
    decision = compiled.decide(principal, action, asked)
    assert decision.allowed == compiled.allows(principal, action, asked)
    return decision.allowed


def request(tags: str, *rules: Rule) -> bool:
    return allows(Action.REQUEST, tags, *rules)


def register(tags: str, *rules: Rule) -> bool:
    return allows(Action.REGISTER, tags, *rules)


@pytest.mark.parametrize("action", EVERY_ACTION)
def test_nothing_is_allowed_without_a_rule(action: Action) -> None:
    assert not allows(action, "service=orders")
    others = [rule(each, "*" if each.has_tags else "") for each in Action if each is not action]
    assert not allows(action, "service=orders", *others)


@pytest.mark.parametrize("action", [Action.PEER, Action.READ, Action.OPERATE])
def test_actions_without_tags_are_allowed_and_denied_as_a_whole(action: Action) -> None:
    assert allows(action, "", rule(action))
    assert not allows(action, "", rule(action), rule(action, deny=True))


def test_a_rule_holds_for_its_roles_and_names_only() -> None:
    for_others = rule(Action.READ, role="mail", names="mail-1")
    assert not allows(Action.READ, "", for_others)
    assert allows(Action.READ, "", rule(Action.READ, role="", names="shop-1"))
    assert allows(Action.READ, "", rule(Action.READ, role="mail", names="shop-*"))
    assert allows(Action.READ, "", rule(Action.READ, role="", names="*"))
    assert not allows(Action.READ, "", rule(Action.READ, role="", names="shop-10*"))
    # A role is no name, and a name is no role.
    assert not allows(Action.READ, "", rule(Action.READ, role="shop-1", names="shop"))


def test_a_request_has_to_name_all_tags_of_a_rule() -> None:
    orders = rule(Action.REQUEST, "service=orders tenant=a")
    assert request("service=orders tenant=a", orders)
    assert request("service=orders tenant=a region=eu", orders)
    # It would reach the orders of other tenants.
    assert not request("service=orders", orders)
    assert not request("tenant=a", orders)
    assert not request("service=orders tenant=b", orders)
    # That of no rule alone, by its route id.
    assert not request("route=0000-0000-0001", orders)


def test_a_star_stands_for_the_rest_of_a_value_and_for_any_tag() -> None:
    assert request("service=orders-eu", rule(Action.REQUEST, "service=orders-*"))
    assert request("service=orders-", rule(Action.REQUEST, "service=orders-*"))
    assert not request("service=mail", rule(Action.REQUEST, "service=orders-*"))
    assert not request("instance=orders-eu", rule(Action.REQUEST, "service=orders-*"))
    assert request("service", rule(Action.REQUEST, "service=*"))
    assert not request("service", rule(Action.REQUEST, "service=o*"))
    assert request("anything", rule(Action.REQUEST, "*"))
    assert request("service=o*", rule(Action.REQUEST, "service=o%2A"))
    assert not request("service=orders", rule(Action.REQUEST, "service=o%2A"))


def test_a_registration_has_to_be_covered_by_one_rule() -> None:
    orders = rule(Action.REGISTER, "service=orders region=eu region=us zone=*")
    mail = rule(Action.REGISTER, "service=mail tenant=b")
    assert register("service=orders", orders, mail)
    assert register("service=orders region=eu region=us zone=17", orders, mail)
    assert register("service=mail tenant=b", orders, mail)
    assert not register("service=orders region=cn", orders, mail)
    assert not register("service=orders colour=blue", orders, mail)
    # The rules cover the tags together, but for other destinations.
    assert not register("service=orders tenant=b", orders, mail)
    assert register("service=orders tenant=b", rule(Action.REGISTER, "*"))


def test_a_denied_registration_brings_all_tags_of_the_rule() -> None:
    allow = rule(Action.REGISTER, "*")
    deny = rule(Action.REGISTER, "service=audit region=*", deny=True)
    assert not register("service=audit region=eu colour=blue", allow, deny)
    assert register("service=audit", allow, deny)
    assert register("service=mail region=eu", allow, deny)


def test_a_request_is_denied_if_it_may_reach_the_denied_tags() -> None:
    allow = rule(Action.REQUEST, "*")
    deny = rule(Action.REQUEST, "service=audit", deny=True)
    assert not request("service=audit", allow, deny)
    assert not request("service=audit region=eu", allow, deny)
    # A destination of the service may be in the region, and have the route id.
    assert not request("region=eu", allow, deny)
    assert not request("route=0000-0000-0001", allow, deny)
    assert request("service=mail", allow, deny)
    assert not request("service=mail service=audit", allow, deny)
    both = rule(Action.REQUEST, "service=audit region=eu*", deny=True)
    assert not request("service=audit", allow, both)
    assert request("service=audit region=us", allow, both)
    assert not request("service=audit region=eu-1", allow, both)
    assert not request("service=mail", allow, rule(Action.REQUEST, "*", deny=True))


def test_the_decision_names_its_rule_or_the_nearest_one() -> None:
    near = rule(Action.REQUEST, "service=orders tenant=a")
    far = rule(Action.REQUEST, "service=mail tenant=a region=eu*")
    rules = Rules((far, near))
    found = rules.decide(SHOP, Action.REQUEST, parse_query("service=orders tenant=a"))
    assert (found.allowed, found.rule, found.missing) == (True, near, ())
    assert found.why == "decided by: allow request service=orders tenant=a"
    found = rules.decide(SHOP, Action.REQUEST, parse_query("service=orders"))
    assert (found.allowed, found.rule, found.missing) == (False, near, ("tenant=a",))
    assert found.why == (
        "the nearest rule also asks for tenant=a: allow request service=orders tenant=a"
    )
    found = rules.decide(SHOP, Action.REQUEST, parse_query("service=mail tenant=a"))
    assert (found.rule, found.missing) == (far, ("region=eu*",))
    assert rules.decide(SHOP, Action.READ).why == "no rule of this principal allows the action"


def test_a_registration_is_told_which_tags_no_rule_covers() -> None:
    rules = Rules((rule(Action.REGISTER, "service=orders region=*"),))
    found = rules.decide(SHOP, Action.REGISTER, parse_query("service=orders colour=blue"))
    assert found.missing == ("colour=blue",)
    assert found.why.startswith("the nearest rule does not cover colour=blue: allow register ")


def test_a_denying_rule_is_told_with_its_place() -> None:
    deny = Rule(Action.READ, frozenset({"shop"}), deny=True, origin="rules.toml:7")
    assert Rules((deny,)).decide(SHOP, Action.READ).why == "decided by: deny read (rules.toml:7)"


def test_patterns_are_written_as_they_are_read() -> None:
    exact, patterns = parse_patterns("region=eu service=orders-* * zone=*")
    assert exact == parse_query("region=eu")
    assert list(map(str, patterns)) == ["service=orders-*", "*", "zone=*"]
    assert patterns[1] == TagPattern(None)


@pytest.mark.parametrize(
    "text",
    ["", "service=a*b", "*=a", "service*", "a=**", "@multicast", "0x00=nothing", "a " * 257],
    ids=lambda text: text[:12],
)
def test_unreadable_patterns_are_errors(text: str) -> None:
    with pytest.raises(AddressError):
        parse_patterns(text)


def test_there_are_at_most_so_many_rules_and_names_with_a_star() -> None:
    one = rule(Action.READ)
    assert len(Rules([one] * MAX_RULES)) == MAX_RULES
    with pytest.raises(ValueError, match="10001 rules are over the limit of 10000"):
        Rules([one] * (MAX_RULES + 1))
    names = [rule(Action.READ, names=f"{number}*") for number in range(MAX_NAME_PATTERNS)]
    Rules(names)
    with pytest.raises(ValueError, match=r"1001 names with a \* are over the limit of 1000"):
        Rules([*names, rule(Action.READ, names="one-more*")])


def test_forced_tags_are_added_and_may_be_repeated() -> None:
    forced = parse_query("tenant=a")
    assert add_forced_tags(Action.REQUEST, parse_query("service=x"), forced) == parse_query(
        "service=x tenant=a"
    )
    assert add_forced_tags(Action.REQUEST, parse_query("tenant=a"), forced) == forced
    assert add_forced_tags(Action.REQUEST, parse_query("tenant=b"), frozenset()) == parse_query(
        "tenant=b"
    )


@pytest.mark.parametrize("asked", ["tenant=b", "tenant", "tenant=", "tenant=a tenant=b"])
def test_another_value_of_a_forced_tag_is_refused(asked: str) -> None:
    with pytest.raises(NotAllowed, match=r"^not allowed: request$"):
        add_forced_tags(Action.REQUEST, parse_query(asked), parse_query("tenant=a"))


def test_an_error_shows_the_first_characters_only() -> None:
    assert str(NotAllowed("request " + "x" * 300)) == f"not allowed: request {'x' * 192}..."


# --- properties -----------------------------------------------------------------------------
KEYS = ["service", "tenant", "region"]
VALUES = ["a", "ab", "b"]
tags = st.frozensets(st.sampled_from([(key, value) for key in KEYS for value in VALUES])).map(
    lambda chosen: parse_query(" ".join(f"{k}={v}" for k, v in chosen)) if chosen else frozenset()
)
words = st.lists(
    st.one_of(
        st.sampled_from([f"{key}={value}" for key in KEYS for value in [*VALUES, "a*", "*"]]),
        st.just("*"),
    ),
    min_size=1,
    max_size=3,
).map(" ".join)
two = st.sampled_from([Action.REGISTER, Action.REQUEST])
rules_of = st.builds(
    rule, two, words, deny=st.booleans(), role=st.sampled_from(["shop", "mail"]), names=st.just("")
)
many = st.lists(rules_of, max_size=6)


@given(many, two, tags, st.randoms(use_true_random=False))
def test_the_order_of_rules_does_not_matter(
    rules: list[Rule], action: Action, asked: TagSet, random: object
) -> None:
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Rules(rules).allows(SHOP, action, asked) == Rules(shuffled).allows(SHOP, action, asked)


@given(many, two, tags)
def test_deny_wins(rules: list[Rule], action: Action, asked: TagSet) -> None:
    mine = [each for each in rules if each.action is action and "shop" in each.roles]
    expected = any(each.applies(asked) for each in mine if not each.deny) and not any(
        each.applies(asked) for each in mine if each.deny
    )
    assert Rules(rules).allows(SHOP, action, asked) == expected


@given(many, rules_of, two, tags)
def test_another_allowing_rule_never_denies(
    rules: list[Rule], more: Rule, action: Action, asked: TagSet
) -> None:
    assume(not more.deny)
    if Rules(rules).allows(SHOP, action, asked):
        assert Rules([*rules, more]).allows(SHOP, action, asked)


@given(many, tags, tags)
def test_more_tags_never_deny_a_request_unless_a_rule_denies(
    rules: list[Rule], asked: TagSet, more: TagSet
) -> None:
    compiled = Rules(rules)
    if compiled.allows(SHOP, Action.REQUEST, asked):
        decision = compiled.decide(SHOP, Action.REQUEST, asked | more)
        assert decision.allowed or (decision.rule is not None and decision.rule.deny)


@given(many, st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), min_size=1), tags)
def test_no_allowed_request_matches_a_destination_that_a_rule_denies(
    rules: list[Rule], values: dict[str, str], some: TagSet
) -> None:
    carried = parse_query(" ".join(f"{key}={value}" for key, value in values.items()))
    asked = carried & some
    if Rules(rules).allows(SHOP, Action.REQUEST, asked):
        for each in rules:
            if each.deny and each.action is Action.REQUEST and "shop" in each.roles:
                assert not (
                    each.tags <= carried
                    and all(any(map(p.matches, carried)) for p in each.patterns)
                )


@given(tags, tags, st.sampled_from(VALUES))
def test_a_tenant_matches_only_destinations_with_its_tags(
    asked: TagSet, carried: TagSet, tenant: str
) -> None:
    forced = parse_query(f"tenant={tenant}")
    try:
        query = add_forced_tags(Action.REQUEST, asked, forced)
    except NotAllowed:
        assert any(key == "tenant" and value != tenant for key, value in asked)
        return
    if query <= carried:
        assert forced <= carried
