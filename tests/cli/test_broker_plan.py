"""A broker as its options ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from onward.cli._broker_plan import DEFAULT_URI, Plan, plan_of
from onward.cli._config import configured
from onward.cli._main import parser_of
from onward.cli._status import CommandError
from onward.transports.rsocket import LinkOptions
from tests.support.certificates import Certificates

PRINCIPALS = f"""
[[principals.tokens]]
name = "a"
sha256 = "{"a" * 64}"
"""


def planned(folder: Path, text: str, *words: str) -> Plan:
    parser, path = parser_of("broker"), folder / "onward.toml"
    path.write_text(text)
    return plan_of(configured(parser, "broker", parser.parse_args(["--config", str(path), *words])))


def test_without_a_listener_there_is_the_usual_one(tmp_path: Path) -> None:
    plan = planned(tmp_path, "")
    assert plan.listeners == ((DEFAULT_URI, plan.listening),)


def test_each_listener_has_what_is_its_own_and_what_all_have(tmp_path: Path) -> None:
    certificates = Certificates.make(tmp_path)
    plan = planned(
        tmp_path,
        f"""
[connections]
max_connections = 7
lease = false
[tls]
certificate = "{certificates.server}"
[[listener]]
uri = "rsocket+tls://127.0.0.1:0"
tls = {{ authority = "{certificates.authority}", client = "optional" }}
authenticate = ["token", "certificate"]
max_connections = 3
[[listener]]
uri = "rsocket+wss://127.0.0.1:0"
origins = "https://shop.example"
authenticate = ["token", "certificate"]
[[listener]]
uri = "rsocket+unix:///run/a"
mode = "660"
lease = true
{PRINCIPALS}
""",
        "--lease-time",
        "3",
    )
    one, two, three = (each for _, each in plan.listeners)
    assert one.tls is not None
    assert (one.tls.client, one.links.max_connections, one.links.lease) == ("optional", 3, None)
    assert two.tls is not None
    assert (two.tls.client, two.links.max_connections) == ("none", 7)
    assert two.websocket.origins == ("https://shop.example",)
    assert (three.unix.mode, one.unix.mode) == (0o660, 0o600)
    assert three.links.lease is not None
    assert three.links.lease.interval == 3
    # Those with the same methods share one authentication, and with it bans.
    assert one.authentication is two.authentication is not three.authentication
    assert three.authentication is plan.listening.authentication is not None
    assert plan.methods.all() == (plan.listening.authentication, one.authentication)


def test_what_the_command_line_gives_is_that_of_all_listeners(tmp_path: Path) -> None:
    text = """
[[listener]]
uri = "rsocket+tcp://127.0.0.1:0"
max_connections = 3
"""
    plan = planned(tmp_path, text, "--max-connections", "9")
    ((_, own),) = plan.listeners
    assert own.links == LinkOptions(max_connections=9)


def test_rules_and_principals_of_both_places_count(tmp_path: Path) -> None:
    rule = """
[[rule]]
names = ["{}"]
request = "service=a"
"""
    (tmp_path / "rules.toml").write_text(rule.format("of the file"))
    (tmp_path / "principals.toml").write_text(
        PRINCIPALS.replace("principals.", "").replace("a" * 64, "b" * 64)
    )
    text = """
[authorization]
rules_file = "rules.toml"
[authentication]
principals_file = "principals.toml"
"""
    plan = planned(tmp_path, text + PRINCIPALS + rule.format("inline"))
    authorization = plan.listening.authorization
    assert authorization is not None
    names = [sorted(each.names) for each in authorization.rules.rules]
    assert names == [["of the file"], ["inline"]]
    assert [each.options.timeout for each in plan.methods.all()] == [2.0]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[[listener]]\nuri = "rsocket+tcp://127.0.0.1:0"\nmode = "600"',
            'onward.toml:1: mode goes with uri = "rsocket+unix://..."',
        ),
        (
            (
                '[[rule]]\nnames = ["*"]\nrequest = "service=a"\n'
                '[authorization]\nrules_file = "rules.toml"'
            ),
            (
                "onward.toml:1: it allows nothing, as another rule denies it: deny request "
                "service=a (rules.toml:1)"
            ),
        ),
        (
            '[authentication]\nprincipals_file = "principals.toml"' + PRINCIPALS,
            "tokens: there are two entries with the same key: a",
        ),
        (
            '[authentication]\nmethods = ["jwt"]\n' + PRINCIPALS,
            "--authenticate: 'jwt' is not one of anonymous, certificate, password, token, unix",
        ),
        (
            "[authentication]\nanonymous = true",
            "--anonymous goes with --principals, --jwt-keys or --callout",
        ),
    ],
)
def test_what_does_not_go_together(tmp_path: Path, text: str, told: str) -> None:
    rules = '[[rule]]\nnames = ["*"]\nrequest = "service=a"\ndeny = true\n'
    (tmp_path / "rules.toml").write_text(rules)
    (tmp_path / "principals.toml").write_text(PRINCIPALS.replace("principals.", ""))
    with pytest.raises(CommandError) as caught:
        planned(tmp_path, text)
    assert str(caught.value).replace(f"{tmp_path}/", "") == told


def test_a_list_with_anonymous_makes_no_other_listener_open(tmp_path: Path) -> None:
    plan = planned(
        tmp_path,
        f"""
[[listener]]
uri = "rsocket+tcp://127.0.0.1:1"
authenticate = "anonymous"
[[listener]]
uri = "rsocket+tcp://127.0.0.1:2"
{PRINCIPALS}
""",
    )
    (_, is_open), (_, other) = plan.listeners
    assert is_open.authentication is not other.authentication
    assert other.authentication is plan.listening.authentication
    methods = [each.method for each in plan.listening.authentication._methods]  # type: ignore[union-attr]
    assert methods == ["certificate", "unix", "token", "password"]


def test_the_order_of_methods_is_an_option_too(tmp_path: Path) -> None:
    words = ("--authenticate", "password", "--authenticate", "token", "--anonymous")
    plan = planned(tmp_path, PRINCIPALS, *words)
    assert plan.listening.authentication is not None
    methods = [each.method for each in plan.listening.authentication._methods]
    assert methods == ["password", "token", "anonymous"]


def test_processes_share_the_limits_of_the_machine(tmp_path: Path) -> None:
    text = "[connections]\nmax_connections = 1000\nmax_connections_per_source = 10\nresume = true\n"
    links = planned(tmp_path, text + "resume_sessions = 100\n", "--processes", "3").listening.links
    assert (links.max_connections, links.max_connections_per_source) == (334, 10)
    assert links.resume is not None
    assert links.resume.max_sessions == 34
