#!/usr/bin/env python3
"""Writes the bill of materials of the server with all features: name, version, checksum and licence of every crate in the program,
as CycloneDX JSON. The same inputs and SOURCE_DATE_EPOCH give the same bytes.

    sbom.py OUT.json

cargo-cyclonedx also lists crates that no enabled feature uses, such as database drivers; `cargo tree` knows them.
"""

import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TARGET = "x86_64-unknown-linux-gnu"
# cargo-cyclonedx writes a file with this name beside the manifest of every member of the workspace.
NAME = "lowroad-sbom"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout


def crates_in_program():
    """The name and version of each crate that is compiled for the program."""
    tree = output("cargo", "tree", "--locked", "-p", "lowroad", "-e", "normal", "--target", TARGET, "--prefix", "none")
    return set(re.findall(r"^(\S+) v(\S+)", tree, re.MULTILINE))


def all_components():
    """The bill of cargo-cyclonedx, without paths of this machine."""
    tool = output(str(REPOSITORY / "tools/cargo-tool.sh"), "cargo-cyclonedx", "0.5.9").strip()
    try:
        output(tool, "cyclonedx", "--quiet", "--format", "json", "--spec-version", "1.5", "--no-build-deps", "--target", TARGET,
               "--manifest-path", "crates/server/Cargo.toml", "--override-filename", NAME)
        text = (REPOSITORY / f"crates/server/{NAME}.json").read_text()
    finally:
        for folder in ["crates", "unikernel", "examples"]:
            for file in (REPOSITORY / folder).rglob(f"{NAME}.json"):
                file.unlink()
    return json.loads(text.replace(f"{REPOSITORY}/", ""))


def without_unused(bill):
    """Removes the crates that the program does not contain."""
    used = crates_in_program()
    bill["components"] = [it for it in bill["components"] if (it["name"], it["version"]) in used]
    kept = {it["bom-ref"] for it in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    bill["dependencies"] = [
        {**it, "dependsOn": [ref for ref in it.get("dependsOn", []) if ref in kept]}
        for it in bill["dependencies"]
        if it["ref"] in kept
    ]
    return bill


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bill = without_unused(all_components())
    pathlib.Path(sys.argv[1]).write_text(json.dumps(bill, indent=1) + "\n")


main()
