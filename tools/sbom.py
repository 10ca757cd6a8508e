"""Write the bill of materials of a release: `python -m tools.sbom --python PYTHON OUTPUT`.

A wheel of Onward has no other program in it, but for the files of the console that others have
written. It runs with the packages that pip installs beside it. The bill lists both, as CycloneDX
(ECMA-424) in JSON: packages by the metadata of an environment in which Onward's dependencies are
installed, files by the manifests beside them, `vendored.json`:

    [{"name": "uplot", "version": "1.6.32", "license": "MIT", "sha256": "...", "file": "uplot.js"}]

It is the same for the same packages, whenever it is made: its time is SOURCE_DATE_EPOCH, its serial
number is made of its content.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools import build_backend

ROOT: Final = Path(__file__).resolve().parent.parent
SPECIFICATION: Final = "1.6"
MANIFEST: Final = "vendored.json"
NAMESPACE: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "onward.bill-of-materials")

EXTRAS: Final = ("admin", "jwt", "otel", "passwords", "typed")
"""Extras that a broker or a node may run with. The pipeline's run elsewhere, with Spark."""

SERIAL: Final = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
PATH: Final = "import json, sys; print(json.dumps(sys.path))"

Json = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the bill."""
    parser = argparse.ArgumentParser(description="Write the bill of materials of a release.")
    parser.add_argument("--python", default=sys.executable, help="of the environment to describe")
    parser.add_argument("output", type=Path)
    given = parser.parse_args(arguments)
    output: Path = given.output
    bill = make_bill(ROOT, installed(given.python), build_backend.source_time())
    problems = find_problems(bill)
    if problems:
        sys.exit("sbom: " + "\nsbom: ".join(problems))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    print(f"sbom: {len(bill['components'])} components in {output}")


def requirements(root: Path) -> list[str]:
    """Return what the bill's environment needs: the dependencies, and those of `EXTRAS`."""
    project = build_backend.read_config(root)["project"]
    extras: Mapping[str, list[str]] = project["optional-dependencies"]
    return [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]


def installed(python: str | Path) -> dict[str, importlib.metadata.Distribution]:
    """Return the distributions of an environment, by their names in one form."""
    command = [python, "-I", "-c", PATH]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, importlib.metadata.Distribution] = {}
    for each in importlib.metadata.distributions(path=json.loads(done.stdout)):
        # The first on the path is the one that is imported.
        found.setdefault(canonicalize_name(each.metadata["Name"]), each)
    return found


def make_bill(root: Path, found: Mapping[str, importlib.metadata.Distribution], at: int) -> Json:
    """Make the bill of a checkout.

    Args:
        root: The folder of the checkout.
        found: The distributions of the environment, by name.
        at: The time of the bill, in seconds since 1970.

    Raises:
        LookupError: A dependency is not in the environment.
    """
    project = build_backend.read_config(root)["project"]
    version = build_backend.read_version(root)
    main_ref = f"pkg:pypi/onward@{version}"
    needed = follow(map(Requirement, project["dependencies"]), found)
    reached = follow(map(Requirement, requirements(root)), found)
    packages = [
        describe_package(found[name], "required" if name in needed else "optional")
        for name in sorted(reached)
    ]
    files = [each for folder in package_folders(root) for each in read_vendored(folder, root)]
    components = packages + files
    direct = {canonicalize_name(Requirement(each).name) for each in requirements(root)}
    depends = {
        main_ref: [_ref(found[name]) for name in sorted(direct & reached.keys())]
        + [each["bom-ref"] for each in files],
        **{
            _ref(found[name]): [_ref(found[each]) for each in sorted(reached[name])]
            for name in reached
        },
        **{each["bom-ref"]: [] for each in files},
    }
    bill: Json = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": main_ref,
                "name": "onward",
                "version": version,
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": main_ref,
            },
        },
        "components": components,
        "dependencies": [
            {"ref": ref, "dependsOn": sorted(on)} for ref, on in sorted(depends.items())
        ],
    }
    content = json.dumps(bill, sort_keys=True)
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, content)}"
    return bill


def follow(
    wanted: Iterable[Requirement], found: Mapping[str, importlib.metadata.Distribution]
) -> dict[str, set[str]]:
    """Return the names that requirements lead to, each with the names that it requires itself."""
    reached: dict[str, set[str]] = {}
    ahead = [(canonicalize_name(each.name), each.extras) for each in wanted if _applies(each)]
    while ahead:
        name, extras = ahead.pop()
        if name not in found:
            raise LookupError(f"{name} is required and not installed")
        needs = [Requirement(each) for each in found[name].requires or []]
        applying = [each for each in needs if _applies(each, extras)]
        on = reached.setdefault(name, set())
        ahead += [
            (canonicalize_name(each.name), each.extras)
            for each in applying
            if canonicalize_name(each.name) not in on
        ]
        on |= {canonicalize_name(each.name) for each in applying}
    return reached


def describe_package(package: importlib.metadata.Distribution, scope: str) -> Json:
    """Return the component of a package.

    Args:
        package: The installed package.
        scope: `required`, or `optional` if an extra brings it.
    """
    name, version = canonicalize_name(package.metadata["Name"]), package.version
    return {
        "type": "library",
        "bom-ref": _ref(package),
        "name": name,
        "version": version,
        "scope": scope,
        "licenses": [_license(package)],
        "purl": f"pkg:pypi/{name}@{version}",
    }


def read_vendored(folder: Path, root: Path) -> list[Json]:
    """Return the components that the manifests in a folder of code list.

    Args:
        folder: The folder of a package.
        root: The folder of the checkout.

    Raises:
        ValueError: A file differs from its digest.
    """
    components: list[Json] = []
    for manifest in sorted(folder.rglob(MANIFEST)):
        entries: list[dict[str, str]] = json.loads(manifest.read_text())
        for entry in entries:
            file = manifest.parent / entry["file"]
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            if digest != entry["sha256"]:
                raise ValueError(f"{file.relative_to(root)}: is not what {MANIFEST} says: {digest}")
            ref = f"pkg:npm/{entry['name'].replace('@', '%40')}@{entry['version']}"
            components.append(
                {
                    "type": "library",
                    "bom-ref": f"{ref}#{entry['file']}",
                    "name": entry["name"],
                    "version": entry["version"],
                    "scope": "required",
                    "hashes": [{"alg": "SHA-256", "content": digest}],
                    "licenses": [{"expression": entry["license"]}],
                    "purl": ref,
                    "properties": [
                        {"name": "onward:file", "value": file.relative_to(root).as_posix()}
                    ],
                }
            )
    return components


def package_folders(root: Path) -> list[Path]:
    """Return the folders with what a wheel is made of."""
    folders: Mapping[str, str]
    folders = build_backend.read_config(root)["tool"]["setuptools"]["package-dir"]
    whole = [root / each for each in folders.values()]
    return [each for each in whole if not any(other in each.parents for other in whole)]


def find_problems(bill: Json) -> list[str]:
    """Return what a bill lacks of CycloneDX, as far as it is used here, and of being of use."""
    problems: list[str] = []
    if (bill.get("bomFormat"), bill.get("specVersion")) != ("CycloneDX", SPECIFICATION):
        problems.append(f"not CycloneDX {SPECIFICATION}")
    if not SERIAL.fullmatch(bill["serialNumber"]):
        problems.append("the serial number is no URN of a UUID")
    components: list[Json] = [bill["metadata"]["component"], *bill["components"]]
    refs = [each["bom-ref"] for each in components]
    problems += [f"{ref}: twice" for ref in sorted({each for each in refs if refs.count(each) > 1})]
    for each in components:
        ref = each["bom-ref"]
        purl = rf"pkg:(pypi|npm)/[A-Za-z0-9._%/-]+@{re.escape(each['version'])}"
        if not re.fullmatch(purl, each["purl"]):
            problems.append(f"{ref}: the package URL is not one of the version")
        if not [one for one in each["licenses"] if one.get("expression") or one.get("license")]:
            problems.append(f"{ref}: has no license")
        for one in each.get("hashes", ()):
            if one["alg"] != "SHA-256" or not re.fullmatch("[0-9a-f]{64}", one["content"]):
                problems.append(f"{ref}: a hash is no SHA-256")
    listed = [each["ref"] for each in bill["dependencies"]]
    if sorted(listed) != sorted(refs):
        problems.append("the dependencies are not those of all components")
    used = {ref for each in bill["dependencies"] for ref in each["dependsOn"]}
    problems += [f"{ref}: is no component" for ref in sorted(used - {*refs})]
    problems += [f"{ref}: nothing needs it" for ref in sorted({*refs[1:]} - used)]
    return problems


def _applies(requirement: Requirement, extras: Iterable[str] = ()) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras))


def _ref(package: importlib.metadata.Distribution) -> str:
    return f"pkg:pypi/{canonicalize_name(package.metadata['Name'])}@{package.version}"


def _license(package: importlib.metadata.Distribution) -> Json:
    """Return the license: an expression of SPDX if the package has one, else its own words."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return {"expression": metadata["License-Expression"]}
    kinds = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier", [])
        if each.startswith("License :: ")
    ]
    # The field License may hold the whole text; the classifiers are names.
    (own, *_) = metadata.get_all("License", ["unknown"])
    words = " or ".join(kinds) or own.partition("\n")[0]
    return {"license": {"name": words}}


if __name__ == "__main__":
    main()
