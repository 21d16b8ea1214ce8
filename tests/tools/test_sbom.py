"""The bill of materials that set-up writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroscale.core import delivered, tool_cache
from neuroscale.tools.running import SetupError
from neuroscale.tools.sbom import MODULE_COPY, BillOfMaterials, modules_of

REPOSITORY = delivered.FOLDER
START, END = bytes.fromhex("3077af0c9274080241e1c107e6d618e6"), bytes.fromhex("f932433186182072008242104116d8f2")


def test_replaced_modules_count_as_what_replaces_them(tmp_path: Path) -> None:
    listed = "path\tcmd\nmod\ta.org/a\tv1\th1:a=\ndep\tb.org/b\tv2\n=>\tc.org/c\tv3\th1:c=\ndep\td.org/d\tv4\th1:d=\n"
    binary = tmp_path / "tool"
    binary.write_bytes(b"code" + START + b"other" + START + listed.encode() + END + b"more")
    assert modules_of(binary) == [("c.org/c", "v3", "h1:c="), ("d.org/d", "v4", "h1:d=")]


def test_a_copy_of_a_module_counts_as_the_module(tmp_path: Path) -> None:
    listed = f"path\tcmd\nmod\ta.org/a\tv1\t\n=>\t{MODULE_COPY}\t(devel)\t\ndep\td.org/d\tv4\th1:d=\n"
    (tmp_path / "tool").write_bytes(START + listed.encode() + END)
    assert modules_of(tmp_path / "tool") == [("d.org/d", "v4", "h1:d=")]


def test_a_binary_without_a_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"code" + START + b"other")
    with pytest.raises(SetupError, match="does not say which modules"):
        modules_of(tmp_path / "tool")


@pytest.mark.tools
def test_it_lists_the_pinned_modules_of_real_tools_and_every_locked_package(tmp_path: Path) -> None:
    tool = tool_cache.tool("gitleaks", REPOSITORY)
    lock = REPOSITORY / "requirements" / "runtime.txt"
    node_lock = REPOSITORY / "tests" / "node" / "package-lock.json"
    bill = BillOfMaterials(tmp_path / "sbom.json", [tool], [lock], node_lock)
    assert not bill.done()
    bill.write()
    assert bill.done()
    found = json.loads(bill.file.read_text())
    assert (found["bomFormat"], found["specVersion"]) == ("CycloneDX", "1.6")
    program, *packages = found["components"]
    assert (program["name"], program["version"]) == ("gitleaks", tool.module.version)
    sums = (tool.source / "go.sum").read_text()
    for module in program["components"]:
        (checksum,) = [one["value"] for one in module["properties"]]
        assert f"{module['name']} {module['version']} {checksum}\n" in sums
    of_node = {package["purl"]: package for package in packages if package["purl"].startswith("pkg:npm/")}
    assert len(packages) - len(of_node) == sum(line[0].isalnum() for line in lock.read_text().splitlines())
    assert {"pydantic", "httpx"} <= {package["name"] for package in packages}
    versions = {entry["version"] for path, entry in json.loads(node_lock.read_text())["packages"].items() if path}
    assert {package["version"] for package in of_node.values()} == versions
    assert len(of_node["pkg:npm/nunjitsu@0.6.1"]["hashes"][0]["content"]) == 128
    references = [one["bom-ref"] for one in (program, *program["components"], *packages)]
    assert len(set(references)) == len(references)
    bill.file.write_text(bill.file.read_text().replace("made-of", "x"))
    assert not bill.done()
