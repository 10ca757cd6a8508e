"""The workflows keep to the rules that make a release worth trusting."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tools import build_backend

yaml: Any = pytest.importorskip("yaml", reason="PyYAML comes with the group docs")

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
"""An action by its commit, with the version that it had then."""

FORBIDDEN = {
    "secrets.": "there is none",
    "pull_request_target": "it runs with the rights of the repository on the code of others",
    "workflow_run": "likewise",
    "curl ": "what is not pinned is not run",
    "wget ": "likewise",
}


def read(file: Path) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(file.read_text())
    return found


def jobs(file: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = read(file)["jobs"]
    return found


def steps(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, job in jobs(file).items():
        for step in job["steps"]:
            yield name, step


def each_file() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.name))


def test_there_are_three() -> None:
    assert [file.stem for file in FILES] == ["audit", "ci", "release"]


@each_file()
def test_actions_are_named_by_their_commit(file: Path) -> None:
    named = re.findall(r"^ *-? *uses: (.*)$", file.read_text(), re.MULTILINE)
    assert named
    assert [each for each in named if not PINNED.fullmatch(each)] == []


@each_file()
def test_one_action_has_one_commit_everywhere(file: Path) -> None:
    everywhere = {
        tuple(each.split("@", 1))
        for other in FILES
        for each in re.findall(r"uses: (.*)$", other.read_text(), re.MULTILINE)
    }
    assert len({action for action, _ in everywhere}) == len(everywhere), file


@each_file()
def test_nothing_is_permitted_that_a_job_does_not_name(file: Path) -> None:
    assert read(file)["permissions"] == {}
    for name, job in jobs(file).items():
        given = job["permissions"]
        wanted = {"id-token": "write"} if name == "publish" else {"contents": "read"}
        assert given == wanted, name


@each_file()
def test_what_must_not_be_in_a_workflow_is_not(file: Path) -> None:
    text = file.read_text()
    assert [f"{word}: {why}" for word, why in FORBIDDEN.items() if word in text] == []


@each_file()
def test_no_text_of_others_gets_into_a_command(file: Path) -> None:
    assert [step["run"] for _, step in steps(file) if "${{" in step.get("run", "")] == []


@each_file()
def test_a_checkout_leaves_no_token_behind(file: Path) -> None:
    for _, step in steps(file):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


@each_file()
def test_dependencies_have_been_there_for_two_days(file: Path) -> None:
    assert read(file)["env"]["PIP_UPLOADED_PRIOR_TO"] == "P2D"
    for _, step in steps(file):
        if step.get("uses", "").startswith("actions/setup-python@"):
            # Older ones do not know the option, and say nothing.
            assert tuple(map(int, step["with"]["pip-version"].split("."))) >= (26, 1)


@each_file()
def test_a_job_ends(file: Path) -> None:
    assert [name for name, job in jobs(file).items() if not job.get("timeout-minutes")] == []


@each_file()
def test_a_workflow_installs_groups_that_there_are(file: Path) -> None:
    text = file.read_text()
    groups = set(re.findall(r"pip install --group (\S+)", text))
    assert groups <= PYPROJECT["dependency-groups"].keys()
    extras = {each for one in re.findall(r'"\.\[(.*?)\]"', text) for each in one.split(",")}
    assert extras <= PYPROJECT["project"]["optional-dependencies"].keys()


def test_changes_run_what_has_to_pass() -> None:
    (job,) = jobs(ROOT / ".github" / "workflows" / "ci.yml").values()
    assert job["steps"][-1]["run"] == ".ci/run"
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_only_the_last_job_may_publish_and_it_runs_no_code_of_ours() -> None:
    release = ROOT / ".github" / "workflows" / "release.yml"
    publish = jobs(release)["publish"]
    assert publish["environment"] == {"name": "release"}
    assert set(publish["needs"]) == jobs(release).keys() - {"publish"}
    assert [step for step in publish["steps"] if "checkout" in step.get("uses", "")] == []
    commands = [step["run"] for step in publish["steps"] if "run" in step]
    # What it runs is named with its version.
    assert re.fullmatch(r"python -m pip install( [\w-]+==[\d.]+)+", commands[0])
    assert commands[-2].startswith("python -m pypi_attestations sign")
    assert "--attestations" in commands[-1]
    assert read(release)[True] == {"push": {"tags": ["v*"]}}


def test_all_files_of_a_release_are_built_and_published() -> None:
    release = ROOT / ".github" / "workflows" / "release.yml"
    commands = [step["run"] for _, step in steps(release) if "run" in step]
    assert "make release" in commands
    assert [each for each in commands if "cibuildwheel" in each and "install" not in each]
    machines = {
        each["machine"] for each in jobs(release)["wheels"]["strategy"]["matrix"]["include"]
    }
    assert machines == {"linux-x86_64", "linux-aarch64", "macos-arm64"}
    uploaded = {
        step["with"]["name"]
        for _, step in steps(release)
        if step.get("uses", "").startswith("actions/upload-artifact@")
    }
    assert uploaded == {"files", "bill", "wheels-${{ matrix.machine }}"}


def test_each_wheel_is_compiled_has_its_bill_and_is_tested() -> None:
    config = PYPROJECT["tool"]["cibuildwheel"]
    environment = config["environment"]
    assert environment[build_backend.COMPILE] == "1"
    assert environment[build_backend.SBOM] == build_backend.SBOM_NAME
    assert "SOURCE_DATE_EPOCH" in config["environment-pass"]
    assert "pytest" in config["test-command"]
    assert "onward --version | grep compiled" in config["test-command"]
    assert {*config["test-groups"]} <= PYPROJECT["dependency-groups"].keys()
    oldest = PYPROJECT["project"]["requires-python"].removeprefix(">=3.")
    assert config["build"][0] == f"cp3{oldest}-*"
    assert {config[f"manylinux-{each}-image"] for each in ("x86_64", "aarch64")} == {
        "manylinux_2_28"
    }
