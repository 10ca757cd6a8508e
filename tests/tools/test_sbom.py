"""The bill of materials: packages and vendored files, the same each time, as CycloneDX wants it."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from tests.support.fixtures import Capsys, Patch
from tools import build_backend, sbom

ROOT = Path(__file__).resolve().parents[2]
AT = 1_700_000_000

WRONG_COMPONENTS: list[tuple[dict[str, Any], str]] = [
    ({"version": "0"}, "the package URL is not one of the version"),
    ({"licenses": [{}]}, "has no license"),
    ({"hashes": [{"alg": "MD5", "content": ""}]}, "a hash is no SHA-256"),
    ({"bom-ref": "other"}, "is no component"),
]


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return sbom.make_bill(ROOT, sbom.installed(sys.executable), AT)


class Package(importlib.metadata.Distribution):
    """A distribution that is installed nowhere."""

    def __init__(self, *lines: str) -> None:
        self.lines = lines

    def read_text(self, filename: str) -> str | None:
        text = "Metadata-Version: 2.4\n" + "\n".join(self.lines) + "\n\n"
        return text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Any:
        raise NotImplementedError


def package(name: str, *lines: str) -> Package:
    return Package(f"Name: {name}", "Version: 1.0", *lines)


def vendor(folder: Path, **changed: str) -> dict[str, str]:
    """Put a file of others into a folder of code, with its manifest."""
    code = b"export const answer = 42\n"
    (folder / "console").mkdir(parents=True)
    (folder / "console" / "plot.js").write_bytes(code)
    entry = {
        "name": "@scope/plot",
        "version": "1.6.32",
        "license": "MIT",
        "sha256": hashlib.sha256(code).hexdigest(),
        "file": "plot.js",
    }
    (folder / "console" / sbom.MANIFEST).write_text(json.dumps([entry | changed]))
    return entry


def test_the_bill_of_what_is_installed_is_well_formed(bill: dict[str, Any]) -> None:
    assert sbom.find_problems(bill) == []
    main = bill["metadata"]["component"]
    assert main["purl"] == f"pkg:pypi/onward@{build_backend.read_version(ROOT)}"
    assert main["licenses"] == [{"expression": "Apache-2.0"}]
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"


def test_it_lists_each_dependency_with_its_installed_version(bill: dict[str, Any]) -> None:
    scopes = {each["name"]: each["scope"] for each in bill["components"]}
    versions = {each["name"]: each["version"] for each in bill["components"]}
    assert {scopes[name] for name in ("pykka", "rsocket", "cbor2", "websockets")} == {"required"}
    assert {scopes[name] for name in ("h11", "joserfc", "msgspec", "bcrypt")} == {"optional"}
    # What joserfc brings.
    assert scopes["cryptography"] == "optional"
    assert versions["pykka"] == importlib.metadata.version("pykka")
    # Neither what only tests need, nor what the pipeline runs on elsewhere.
    assert {"pytest", "mypy", "pyspark"} & scopes.keys() == set()


def test_it_says_what_needs_what(bill: dict[str, Any]) -> None:
    names = {each["bom-ref"]: each["name"] for each in bill["components"]}
    needs = {
        names.get(each["ref"], "onward"): {names[one] for one in each["dependsOn"]}
        for each in bill["dependencies"]
    }
    assert {"pykka", "h11", "joserfc"} <= needs["onward"]
    assert "cryptography" not in needs["onward"]
    assert "cryptography" in needs["joserfc"]


def test_it_lists_the_files_of_others_in_the_console(bill: dict[str, Any]) -> None:
    (manifest,) = (ROOT / "transports").rglob(sbom.MANIFEST)
    entries: list[dict[str, Any]] = json.loads(manifest.read_text())
    found = {each["bom-ref"]: each for each in bill["components"] if "hashes" in each}
    assert found.keys() == {
        f"pkg:npm/{each['name']}@{each['version']}#{each['file']}" for each in entries
    }
    licenses = [each["licenses"] for each in found.values()]
    assert licenses == [[{"expression": each["license"]}] for each in entries]


def test_it_is_the_same_each_time(bill: dict[str, Any]) -> None:
    again = sbom.make_bill(ROOT, sbom.installed(sys.executable), AT)
    assert json.dumps(again) == json.dumps(bill)
    later = sbom.make_bill(ROOT, sbom.installed(sys.executable), AT + 1)
    assert later["serialNumber"] != bill["serialNumber"]


def test_files_of_others_are_listed_with_their_digest(tmp_path: Path) -> None:
    entry = vendor(tmp_path)
    (found,) = sbom.read_vendored(tmp_path, tmp_path)
    assert found["purl"] == "pkg:npm/%40scope/plot@1.6.32"
    assert found["hashes"] == [{"alg": "SHA-256", "content": entry["sha256"]}]
    assert found["licenses"] == [{"expression": "MIT"}]
    assert found["properties"] == [{"name": "onward:file", "value": "console/plot.js"}]


def test_a_folder_without_files_of_others_has_none(tmp_path: Path) -> None:
    assert sbom.read_vendored(tmp_path, tmp_path) == []


def test_a_file_that_is_not_the_listed_one_is_refused(tmp_path: Path) -> None:
    vendor(tmp_path, sha256="0" * 64)
    with pytest.raises(ValueError, match=r"console/plot\.js: is not what vendored\.json says"):
        sbom.read_vendored(tmp_path, tmp_path)


def test_a_bill_with_files_of_others_is_well_formed(
    tmp_path: Path, monkeypatch: Patch, bill: dict[str, Any]
) -> None:
    vendor(tmp_path)
    found = sbom.read_vendored(tmp_path, tmp_path)

    def read_vendored(folder: Path, _root: Path) -> list[dict[str, Any]]:
        return found if folder.name == "cli" else []

    monkeypatch.setattr(sbom, "read_vendored", read_vendored)
    made = sbom.make_bill(ROOT, sbom.installed(sys.executable), AT)
    assert sbom.find_problems(made) == []
    own = {each["bom-ref"] for each in bill["components"]}
    assert [each["name"] for each in made["components"] if each["bom-ref"] not in own] == [
        "@scope/plot"
    ]


def test_all_folders_of_code_are_looked_into() -> None:
    names = {each.relative_to(ROOT).as_posix() for each in sbom.package_folders(ROOT)}
    assert names == {"package", "actors", "cli", "pipeline", "protocol", "transports"}


@pytest.mark.parametrize(
    ("lines", "license_"),
    [
        (("License-Expression: MIT OR Apache-2.0",), {"expression": "MIT OR Apache-2.0"}),
        (("License: BSD",), {"license": {"name": "BSD"}}),
        (
            ("License: a text", "Classifier: License :: OSI Approved :: MIT License"),
            {"license": {"name": "MIT License"}},
        ),
        ((), {"license": {"name": "unknown"}}),
    ],
)
def test_a_license_is_an_expression_or_the_words_of_the_package(
    lines: tuple[str, ...], license_: dict[str, Any]
) -> None:
    described = sbom.describe_package(package("Some_Name", *lines), "required")
    assert described["licenses"] == [license_]
    assert described["purl"] == "pkg:pypi/some-name@1.0"


def test_requirements_are_followed_where_their_markers_hold() -> None:
    found = {
        "a": package("a", "Requires-Dist: b[fast]", "Requires-Dist: w; sys_platform == 'x'"),
        "b": package("b", "Requires-Dist: c; extra == 'fast'", "Requires-Dist: a"),
        "c": package("c"),
    }
    assert sbom.follow([Requirement("a")], found) == {"a": {"b"}, "b": {"a", "c"}, "c": set()}
    with pytest.raises(LookupError, match="d is required and not installed"):
        sbom.follow([Requirement("d")], found)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"specVersion": "1.4"}, "not CycloneDX 1.6"),
        ({"serialNumber": "7"}, "the serial number is no URN of a UUID"),
        ({"dependencies": []}, "the dependencies are not those of all components"),
    ],
)
def test_a_broken_bill_is_found_out(
    change: dict[str, Any], problem: str, bill: dict[str, Any]
) -> None:
    assert problem in sbom.find_problems(bill | change)


@pytest.mark.parametrize(
    ("change", "problem"),
    WRONG_COMPONENTS,
)
def test_a_broken_component_is_found_out(
    change: dict[str, Any], problem: str, bill: dict[str, Any]
) -> None:
    broken = deepcopy(bill)
    broken["components"][0] |= change
    assert [each for each in sbom.find_problems(broken) if each.endswith(problem)] != []


def test_a_component_that_occurs_twice_or_for_nothing_is_found_out(bill: dict[str, Any]) -> None:
    broken = deepcopy(bill)
    one = broken["components"][0]["bom-ref"]
    broken["components"].append(broken["components"][0])
    assert f"{one}: twice" in sbom.find_problems(broken)
    for each in broken["dependencies"]:
        each["dependsOn"] = [ref for ref in each["dependsOn"] if ref != one]
    assert f"{one}: nothing needs it" in sbom.find_problems(broken)


def test_the_command_writes_it(tmp_path: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(AT))
    output = tmp_path / "folder" / "onward.cdx.json"
    sbom.main([str(output)])
    written = json.loads(output.read_text())
    assert written == sbom.make_bill(ROOT, sbom.installed(sys.executable), AT)
    assert capsys.readouterr().out.startswith(f"sbom: {len(written['components'])} components")
    monkeypatch.setattr(sbom, "SERIAL", re.compile("no serial number is like this"))
    with pytest.raises(SystemExit, match="sbom: the serial number is no URN"):
        sbom.main([str(output)])
