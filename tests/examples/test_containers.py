"""The image and the manifests of the examples fit the commands and the admin interface."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from onward.cli import main
from onward.cli._config import configured
from onward.cli._main import _parser, parser_of
from onward.cli._service import ORDERLY
from onward.transports.admin._health_paths import STAGES
from tests.support.certificates import Certificates
from tools import build_backend

yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with the group docs")
ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "examples" / "operations"
USER = 65532


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, in order."""
    text = re.sub(r"^#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    split = (line.partition(" ") for line in lines if line)
    return [(name, rest.strip()) for name, _, rest in split]


def last_stage() -> dict[str, str]:
    found = instructions()
    begin = max(at for at, (name, _) in enumerate(found) if name == "FROM")
    return dict(found[begin:])


def test_the_image_runs_a_broker_without_a_shell() -> None:
    stage = last_stage()
    assert "RUN" not in stage
    assert stage["USER"] == f"{USER}:{USER}"
    assert stage["STOPSIGNAL"] == "SIGTERM"
    assert json.loads(stage["ENTRYPOINT"]) == ["/opt/onward/bin/onward"]
    arguments = _parser().parse_args(json.loads(stage["CMD"]))
    assert arguments.name == "broker"
    assert arguments.listen == [f"rsocket+tcp://0.0.0.0:{stage['EXPOSE']}"]


def test_the_check_of_the_image_asks_its_broker_in_time() -> None:
    stage = last_stage()
    options, program = stage["HEALTHCHECK"].split("CMD ")
    command, *words = json.loads(program)
    assert [command] == json.loads(stage["ENTRYPOINT"])
    check = _parser().parse_args(words)
    assert check.name == "check"
    assert (check.broker or check.default_broker).rpartition(":")[2] == stage["EXPOSE"]
    (limit,) = re.findall(r"--timeout=(\d+)s", options)
    # The rest is for the start of Python.
    assert check.timeout <= int(limit) - 2


def test_the_image_has_the_packages_that_its_command_needs_compiled() -> None:
    (installs,) = [rest for name, rest in instructions() if name == "RUN" and "venv" in rest]
    assert f"{build_backend.COMPILE}=1 /opt/onward/bin/pip install" in installs
    (extras,) = re.findall(r'"\.\[(.*)\]"', installs)
    known = build_backend.read_config(ROOT)["project"]["optional-dependencies"]
    assert {"admin"} <= {*extras.split(",")} <= known.keys()
    assert "onward --version | grep compiled" in installs


def test_the_image_has_two_stages_of_one_base_and_no_tools_to_build_with() -> None:
    found = instructions()
    stages = [rest for name, rest in found if name == "FROM"]
    assert stages == ["${BASE} AS build", "${BASE}"]
    (base,) = [rest for name, rest in found if name == "ARG"]
    assert base.startswith("BASE=python:")
    assert "slim" in base
    assert last_stage()["COPY"] == "--from=build /opt/onward /opt/onward"
    # Whatever is started takes no shell: all of these are lists of words.
    for name in ("ENTRYPOINT", "CMD"):
        assert all(isinstance(each, str) for each in json.loads(last_stage()[name]))
    _, check = last_stage()["HEALTHCHECK"].split("CMD ")
    assert json.loads(check)


def test_what_is_built_is_what_gets_into_the_build() -> None:
    config = build_backend.read_config(ROOT)
    needed = {
        *config["tool"]["setuptools"]["package-dir"].values(),
        *config["build-system"]["backend-path"],
    }
    needed |= {"pyproject.toml", *build_backend.NEEDED}
    ignored = {*(FOLDER / "Dockerfile.dockerignore").read_text().splitlines()}
    assert needed & ignored == set()


def test_the_configuration_has_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates = Certificates.make(tmp_path)
    for name in ("server.pem", "clients.pem", "server.key"):
        shutil.copy(certificates.server, tmp_path / f"copy-{name}")
        (tmp_path / f"copy-{name}").replace(tmp_path / name)
    shutil.copy(FOLDER / "onward.toml", tmp_path)
    assert main(["config", "check", str(tmp_path / "onward.toml")]) == 0
    assert "no fault; 3 listeners, 7 rules" in capsys.readouterr().out


def manifests() -> dict[str, Any]:
    found = yaml.safe_load_all((FOLDER / "kubernetes.yml").read_text())
    return {each["kind"]: each for each in found}


def pod() -> dict[str, Any]:
    found: dict[str, Any] = manifests()["Deployment"]["spec"]["template"]["spec"]
    return found


def test_the_broker_of_a_pod_understands_its_configuration(tmp_path: Path) -> None:
    (container,) = pod()["containers"]
    parser, file = parser_of("broker"), tmp_path / "onward.toml"
    given = _parser().parse_args(container["args"])
    file.write_text(manifests()["ConfigMap"]["data"][given.config.name])
    arguments = configured(parser, "broker", parser.parse_args(["--config", str(file)]))
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert arguments.listen == [f"rsocket+tls://0.0.0.0:{ports['rsocket']}"]
    # Beyond the loopback interface it is served only so.
    assert arguments.admin == f"https://0.0.0.0:{ports['admin']}"
    assert arguments.admin_open_metrics
    assert len(arguments.inline_rules) == 5
    mounted = [each["mountPath"] for each in container["volumeMounts"]]
    for path in (arguments.certificate, arguments.key, arguments.principals, given.config):
        assert str(Path(path).parent) in mounted


def test_probes_ask_for_their_stage() -> None:
    (container,) = pod()["containers"]
    asked = {
        name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")
    }
    assert {name: each["path"] for name, each in asked.items()} == {
        "startup": "/startupz",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    for each in asked.values():
        assert each["path"] in STAGES
        assert (each["port"], each["scheme"]) == ("admin", "HTTPS")
        # Other names are refused: the address of the pod would be one.
        assert each["httpHeaders"] == [{"name": "Host", "value": "localhost"}]


def test_a_pod_is_killed_after_its_drain() -> None:
    assert pod()["terminationGracePeriodSeconds"] > ORDERLY
    (container,) = pod()["containers"]
    assert "lifecycle" not in container


def test_a_pod_is_confined() -> None:
    assert pod()["securityContext"]["runAsUser"] == USER
    (container,) = pod()["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_the_service_and_the_budget_select_the_pods() -> None:
    found = manifests()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert found["Service"]["spec"]["selector"] == labels
    assert found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
