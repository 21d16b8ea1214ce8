"""Bundles of built tools: who may offer one, what set-up takes from it, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from neuroscale.catalog.settings import load_settings
from neuroscale.core import delivered, tool_cache
from neuroscale.core.errors import InputError
from neuroscale.repo.layout import SETTINGS
from neuroscale.repo.snapshot import MemorySnapshot
from neuroscale.tools import bundle as bundles
from neuroscale.tools import main as setup
from neuroscale.tools import packing, prerequisites, ranges
from neuroscale.tools.bundle import SCHEMAS, Bundle, Digest, RefusedError, digest_of, pinned_go, read_digests
from neuroscale.tools.packing import Packed, pack
from neuroscale.tools.running import SetupError
from neuroscale.tools.steps import Step, Steps

REPOSITORY = delivered.FOLDER
GO = pinned_go(REPOSITORY)
PROGRAM = "#!/bin/sh\necho 1.0\n"


@dataclass
class Offer:
    """A bundle with kubeconform and gitleaks, as `pack` writes it, and the digests that a repository has of them."""

    file: Path
    digests: dict[str, Digest] = field(default_factory=dict)

    def open(self, address: str = "") -> Bundle:
        return Bundle(address or str(self.file), self.digests, GO)


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "theirs"))
    made, parts = Offer(tmp_path / "bundle.zip"), []
    for name in ("kubeconform", "gitleaks"):
        tool = tool_cache.tool(name)
        files = {name: PROGRAM, "files/pages/index": name, "files/run": PROGRAM, tool_cache.STAMP: "{}"}
        for path, text in files.items():
            (tool.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (tool.folder / path).write_text(text)
        for program in (tool.binary, tool.folder / "files/run"):
            program.chmod(0o755)
        parts.append(Packed(name, tool.folder, digest_of(tool.folder, GO)))
    made.digests = {part.name: part.digest for part in parts}
    pack(parts, made.file)
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "cache"))
    return made


@contextmanager
def served(file: Path, *, by_range: bool = True) -> Iterator[tuple[str, list[int]]]:
    """The file's address on a server on this machine, and the sizes of its answers."""
    sizes: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = file.read_bytes()
            asked = self.headers.get("Range") if by_range else None
            if self.path != "/bundle.zip":
                self.send_error(404)
                return
            self.send_response(206 if asked else 200)
            if asked:
                first, last = map(int, asked.removeprefix("bytes=").split("-"))
                self.send_header("Content-Range", f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}")
                content = content[first : last + 1]
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            sizes.append(len(content))

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/bundle.zip", sizes
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_tool_is_taken_whole_by_its_digest(offer: Offer) -> None:
    tool = tool_cache.tool("kubeconform")
    bundle = offer.open()
    assert bundle.has(tool.name, tool.folder.name)
    bundle.take_tool(tool)
    bundle.close()
    assert tool_cache.problem(tool) is None
    assert digest_of(tool.folder, GO) == offer.digests["kubeconform"]
    assert (tool.files / "pages/index").read_text() == "kubeconform"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tool.folder.rglob("*") if path.is_file()}
    assert (modes["kubeconform"], modes["run"], modes["index"]) == (0o755, 0o755, 0o644)
    assert json.loads((tool.folder / tool_cache.STAMP).read_text())["go"] == f"go version go{GO}, in a bundle"
    assert [path.name for path in tool.folder.parent.iterdir()] == [tool.folder.name]


def test_a_server_sends_only_the_tools_that_are_missing(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_BLOCK", 256)
    with served(offer.file) as (address, sizes):
        bundle = offer.open(address)
        bundle.take_tool(tool_cache.tool("gitleaks"))
        bundle.close()
    assert tool_cache.problem(tool_cache.tool("gitleaks")) is None
    assert sum(sizes) < offer.file.stat().st_size


def test_a_server_without_ranges_sends_the_whole_bundle_once(offer: Offer, tmp_path: Path) -> None:
    with served(offer.file, by_range=False) as (address, sizes):
        bundle = offer.open(address)
        bundle.take_tool(tool_cache.tool("gitleaks"))
        bundle.take_tool(tool_cache.tool("kubeconform"))
        bundle.close()
    assert sizes == [offer.file.stat().st_size]
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["tools"]


def test_a_bundle_that_changes_its_size_under_way_is_refused(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_BLOCK", 256)
    monkeypatch.setattr(ranges, "_PAUSE", 0.0)
    with served(offer.file) as (address, _):
        bundle = offer.open(address)
        with offer.file.open("ab") as file:
            file.write(b"more")
        with pytest.raises(RefusedError, match="changed while it was read"):
            bundle.take_tool(tool_cache.tool("kubeconform"))
        bundle.close()
    assert list(tool_cache.tool("kubeconform").folder.parent.iterdir()) == []


def changed(offer: Offer, name: str, edit: dict[str, str]) -> None:
    """Pack the tool again with other files, as somebody may who knows the digest."""
    folder = offer.file.parent / "changed" / offer.digests[name].folder
    for path, text in {name: PROGRAM, "files/pages/index": name, "files/run": PROGRAM, **edit}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    for program in (folder / name, folder / "files/run"):
        program.chmod(0o755)
    pack([Packed(name, folder, offer.digests[name])], offer.file)


@pytest.mark.parametrize("edit", [{"kubeconform": PROGRAM.replace("1", "2")}, {"files/pages/index": "kubeconfirm"}])
def test_a_changed_byte_is_refused(offer: Offer, edit: dict[str, str]) -> None:
    changed(offer, "kubeconform", edit)
    bundle = offer.open()
    with pytest.raises(RefusedError, match="another SHA-256"):
        bundle.take_tool(tool_cache.tool("kubeconform"))
    bundle.close()
    assert list(tool_cache.tool("kubeconform").folder.parent.iterdir()) == []


def test_every_changed_byte_of_a_bundle_is_refused_or_without_effect(offer: Offer) -> None:
    content = offer.file.read_bytes()
    refused = 0
    for place in range(0, len(content), 7):
        offer.file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        tool = tool_cache.tool("kubeconform")
        try:
            bundle = offer.open()
            try:
                bundle.take_tool(tool)
            finally:
                bundle.close()
        except RefusedError:
            refused += 1
            assert not tool.folder.exists()
        else:
            assert digest_of(tool.folder, GO) == offer.digests["kubeconform"]
            shutil.rmtree(tool.folder)
    assert refused > 20


def test_a_program_that_lost_its_right_to_run_is_another_tool(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text(PROGRAM)
    plain = digest_of(tmp_path, GO)
    (tmp_path / "tool").chmod(0o755)
    assert digest_of(tmp_path, GO).sha256 != plain.sha256
    (tmp_path / "link").symlink_to("tool")
    with pytest.raises(RefusedError, match="'link', which is not a plain file"):
        digest_of(tmp_path, GO)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, stat.S_IFREG | 0o644) for name in ("../out", "/out", "a/../../out", "a//b", "./a", "a\\b", "a/", "")),
        ("link", stat.S_IFLNK | 0o777),
        ("device", stat.S_IFCHR | 0o666),
    ],
)
def test_no_name_of_a_bundle_leads_out_of_its_folder(tmp_path: Path, name: str, mode: int) -> None:
    file, into = tmp_path / "inner.zip", tmp_path / "into" / "tool"
    into.mkdir(parents=True)
    entry = zipfile.ZipInfo("placeholder")
    entry.filename, entry.external_attr = name, mode << 16
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("good", "text")
        archive.writestr(entry, "/etc/passwd")
    with zipfile.ZipFile(file) as archive, pytest.raises(RefusedError, match=r"lead out|not a plain file"):
        bundles.extract(archive, into, 15)
    assert list(into.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inner.zip", "into"]


def test_a_bundle_cannot_fill_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "inner.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tool", b"\0" * 10_000_000)
    with zipfile.ZipFile(file) as archive, pytest.raises(RefusedError, match="another size"):
        bundles.extract(archive, tmp_path, 1000)
    assert [path.name for path in tmp_path.iterdir()] == ["inner.zip"]


@pytest.mark.parametrize("change", [{"folder": "v0-other"}, {"go": "1.0"}])
def test_a_tool_without_a_digest_for_its_pins_is_not_taken(offer: Offer, change: dict[str, Any]) -> None:
    tool = tool_cache.tool("kubeconform")
    offer.digests["kubeconform"] = replace(offer.digests["kubeconform"], **change)
    bundle = offer.open()
    assert not bundle.has(tool.name, tool.folder.name)
    assert bundle.has("gitleaks", tool_cache.tool("gitleaks").folder.name)
    bundle.close()


@pytest.mark.parametrize("content", [b"", b"no zip", None])
def test_without_a_usable_bundle_set_up_says_so_in_a_line_and_builds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    file = tmp_path / "bundle.zip"
    if content is not None:
        file.write_bytes(content)
    assert setup.find_bundle(str(file)) is None
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"set-up: the bundle {file} cannot be used: ")
    assert line.endswith("The tools are built here.")


class Forge:
    """A server of private files on this machine: it records the headers, and may send clients elsewhere."""

    def __init__(self, file: Path, goes_to: str = "") -> None:
        self.goes_to = goes_to
        self.headers: list[dict[str, str]] = []
        forge = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                forge.headers.append(dict(self.headers))
                if self.path == "/asset" and forge.goes_to:
                    self.send_response(302)
                    self.send_header("Location", forge.goes_to)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                content = file.read_bytes()
                first, last = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}")
                self.send_header("Content-Length", str(len(content[first : last + 1])))
                self.end_headers()
                self.wfile.write(content[first : last + 1])

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def __enter__(self) -> Forge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def tokens(self) -> set[str | None]:
        return {headers.get("Authorization") for headers in self.headers}


BEARER = f"Bearer {'x' * 20}"


def test_the_token_goes_to_the_named_host_with_each_request(offer: Offer) -> None:
    with Forge(offer.file) as forge, Forge(offer.file) as moved:
        moved.goes_to = "/elsewhere"  # of the same host, as GitHub answers for a renamed repository
        for server in (forge, moved):
            bundle = Bundle(f"{server.address}/asset", offer.digests, GO, "x" * 20)
            bundle.take_tool(tool_cache.tool("gitleaks"))
            bundle.close()
            assert server.tokens == {BEARER}
            assert {headers["Accept"] for headers in server.headers} == {"application/octet-stream"}


def test_the_token_does_not_follow_to_another_host(offer: Offer) -> None:
    """GitHub sends clients to the signed address of a store, which must not see the token, and would refuse it."""
    with Forge(offer.file) as store, Forge(offer.file, f"{store.address}/file") as forge:
        bundle = Bundle(f"{forge.address}/asset", offer.digests, GO, "x" * 20)
        bundle.take_tool(tool_cache.tool("gitleaks"))
        bundle.close()
    assert forge.tokens == {BEARER}
    assert store.tokens == {None}
    assert all("x" * 20 not in str(headers) for headers in store.headers)
    assert tool_cache.problem(tool_cache.tool("gitleaks")) is None


def test_a_token_that_was_left_behind_does_not_come_back(offer: Offer) -> None:
    with Forge(offer.file) as store, Forge(offer.file, f"{store.address}/asset") as forge:
        store.goes_to = f"{forge.address}/file"
        Bundle(f"{forge.address}/asset", offer.digests, GO, "x" * 20).close()
    assert [headers.get("Authorization") for headers in forge.headers][:2] == [BEARER, None]


@pytest.mark.parametrize("host", ["tools.example.com", "192.0.2.1", "127.0.0.1.example.com", "localhost"])
def test_no_token_is_sent_over_plain_http_to_another_machine(
    offer: Offer, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(ranges, "_OPENER", None)  # any request would fail otherwise
    with pytest.raises(RefusedError, match="name an address that begins with https") as caught:
        Bundle(f"http://{host}/bundle.zip", offer.digests, GO, "x" * 20)
    assert "xxx" not in str(caught.value)


def test_the_token_comes_out_of_the_variable_or_of_a_private_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(bundles.TOKEN_FILE, raising=False)
    assert bundles.bundle_token("") == ""
    assert bundles.bundle_token("abc") == "abc"
    file = tmp_path / "token"
    file.write_text("def\n")
    file.chmod(0o600)
    monkeypatch.setenv(bundles.TOKEN_FILE, str(file))
    assert (bundles.bundle_token(""), bundles.bundle_token("abc")) == ("def", "abc")
    for text in ("two words", "two\nlines", "", "caf\u00e9"):
        file.write_text(text)
        with pytest.raises(InputError, match="does not hold exactly one token") as caught:
            bundles.bundle_token("")
        assert not text or text not in str(caught.value)
    file.chmod(0o644)
    with pytest.raises(InputError, match="chmod 600"):
        bundles.bundle_token("")


def test_the_programs_of_set_up_and_its_output_hold_no_token(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(bundles.TOKEN, "x" * 20)
    seen: list[bool] = []
    step = Step("one", lambda: bool(seen), lambda: seen.append(bundles.TOKEN in os.environ), 1, bundled=("one", "key"))
    monkeypatch.setattr(setup, "steps_of", lambda *_, **__: [step])
    monkeypatch.setattr(setup, "REPOSITORY", REPOSITORY)
    monkeypatch.setattr(prerequisites, "check", lambda _: None)
    with Forge(offer.file) as forge:
        assert setup.main(["--bundle", f"{forge.address}/file"]) == 0
    assert forge.tokens == {BEARER}
    assert seen == [False]
    assert "xxx" not in capsys.readouterr().out


def test_a_server_that_cannot_be_reached_is_said_in_a_line(offer: Offer, capsys: pytest.CaptureFixture[str]) -> None:
    with served(offer.file) as (address, _):
        gone = address
        assert setup.find_bundle(address.replace("bundle", "other")) is None
    assert setup.find_bundle(gone) is None
    first, second = capsys.readouterr().out.splitlines()
    assert "the server answers 404" in first
    assert "refused" in second


def steps_with(bundle: Bundle | None, built: list[str], monkeypatch: pytest.MonkeyPatch, cache: Path) -> list[Step]:
    """The steps for kubeconform and gitleaks, in which to build is only to note the name."""
    steps = Steps(REPOSITORY, cache, bundle)
    monkeypatch.setattr(steps, "_build", lambda tool: built.append(tool.name))
    monkeypatch.setattr(steps, "_need_go", lambda: None)
    return [steps._tool(name) for name in ("kubeconform", "gitleaks")]


def test_what_a_bundle_has_is_taken_and_the_rest_is_built(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(offer, "kubeconform", {"files/pages/index": "kubeconfirm"})
    bundle = offer.open()
    built: list[str] = []
    refused, missing = steps_with(bundle, built, monkeypatch, tmp_path / "cache")
    assert refused.title.startswith("Taking kubeconform v")
    assert missing.title.startswith("Building gitleaks v")
    setup.do(refused)
    assert built == ["kubeconform"]
    assert "      kubeconform v" in (said := capsys.readouterr().out)
    assert "of the bundle is refused: its content has another SHA-256" in said
    assert "It is built instead." in said
    setup.do(missing)
    assert built == ["kubeconform", "gitleaks"]
    bundle.close()


def test_go_is_not_fetched_where_the_bundle_has_every_tool(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    bundle = offer.open()
    for used, needed in ((bundle, False), (None, True)):
        steps = Steps(REPOSITORY, tmp_path / "cache", used)
        tools = [steps._tool(name) for name in ("kubeconform", "gitleaks")]
        assert steps._fetch_go(tools).done() is not needed
    bundle.close()


# ---------------------------------------------------------------- where a bundle is


def test_the_option_comes_before_the_variable_and_that_before_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / SETTINGS
    settings.parent.mkdir(parents=True)
    settings.write_text('tool_bundle: "https://host/x.zip" # ours\n')
    monkeypatch.delenv(bundles.VARIABLE, raising=False)
    assert bundles.address_of(None, tmp_path) == "https://host/x.zip"
    monkeypatch.setenv(bundles.VARIABLE, "")
    assert bundles.address_of(None, tmp_path) == ""
    assert bundles.address_of("file.zip", tmp_path) == "file.zip"


@pytest.mark.parametrize(
    "line",
    [
        "tool_bundle: https://host/x.zip",
        "tool_bundle: >\n  https://host",
        'tool_bundle: "http://h"',
        '"tool_bundle": ""',
    ],
)
def test_a_setting_that_set_up_could_misread_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.delenv(bundles.VARIABLE, raising=False)
    (tmp_path / SETTINGS).parent.mkdir(parents=True)
    (tmp_path / SETTINGS).write_text(f"{line}\n")
    with pytest.raises(SetupError, match="tool_bundle must be one line"):
        bundles.address_of(None, tmp_path)


@pytest.mark.parametrize("address", ["", "https://host/a-b_c/v1.0.0/tools.zip?x=1#y"])
def test_set_up_reads_the_setting_as_the_platform_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.delenv(bundles.VARIABLE, raising=False)
    text = (REPOSITORY / SETTINGS).read_text().replace('\ntool_bundle: ""\n', f'\ntool_bundle: "{address}"\n')
    (tmp_path / SETTINGS).parent.mkdir(parents=True)
    (tmp_path / SETTINGS).write_text(text)
    assert bundles.address_of(None, tmp_path) == address
    assert load_settings(MemorySnapshot({SETTINGS: text.encode()})).tool_bundle == address


def test_an_installed_package_reads_the_setting_of_the_repository_that_it_runs_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(bundles.VARIABLE, raising=False)
    (tmp_path / SETTINGS).parent.mkdir(parents=True)
    (tmp_path / SETTINGS).write_text('tool_bundle: "https://host/x.zip"\n')
    monkeypatch.chdir(tmp_path)
    assert setup.settings_folder() == REPOSITORY
    monkeypatch.setattr(delivered, "CHECKOUT", None)
    assert bundles.address_of(None, setup.settings_folder()) == "https://host/x.zip"


# ---------------------------------------------------------------- digests and packing


def test_the_digests_are_those_of_every_pinned_tool() -> None:
    """A release needs all of them. A tool whose pins moved is built meanwhile, and never taken from a bundle."""
    wanted = {name: tool_cache.tool(name).folder.name for name in tool_cache.TOOL_NAMES}
    wanted[SCHEMAS] = tool_cache.schema_pins().folder.name
    digests = read_digests(REPOSITORY, "linux-x86_64")
    renew = (
        "A pin moved. Renew: python3 scripts/setup.py --for bundle --pinned-go; make bundle ARGUMENTS=--write-digests"
    )
    assert {name: digest.folder for name, digest in digests.items()} == wanted, renew
    assert {digest.go for digest in digests.values()} == {GO}, renew


@pytest.mark.tools
def test_the_tools_that_the_pinned_go_built_here_are_those_of_the_digests() -> None:
    digests = read_digests(REPOSITORY)
    built, _ = packing.look(REPOSITORY)
    assert {part.name: part.digest for part in built} == {part.name: digests.get(part.name) for part in built}


def test_digests_that_are_damaged_are_named(tmp_path: Path) -> None:
    assert read_digests(tmp_path) == {}
    (tmp_path / bundles.DIGESTS).parent.mkdir(parents=True)
    for text in ("{", "[]", '{"linux-x86_64": {"etcd": {"folder": "v1"}}}'):
        (tmp_path / bundles.DIGESTS).write_text(text)
        with pytest.raises(SetupError, match="is not a file of digests"):
            read_digests(tmp_path, "linux-x86_64")


def test_a_moved_pin_needs_only_its_own_tool_to_renew_the_digests(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Digest("v0-old", GO, 1, "0")
    old = {"gitleaks": offer.digests["gitleaks"], "etcd": other, "kubeconform": other, "removed": other}
    monkeypatch.setattr(tool_cache, "TOOL_NAMES", ("kubeconform", "gitleaks", "etcd"))
    monkeypatch.setattr(packing, "read_digests", lambda _: old)
    monkeypatch.setattr(packing, "DIGESTS", tmp_path / "digests.json")
    (tmp_path / "digests.json").write_text('{"another-platform": {}}')
    part = Packed("kubeconform", tmp_path, offer.digests["kubeconform"])
    assert packing.write_digests(REPOSITORY, [part]) == ["etcd", SCHEMAS]
    written = json.loads((tmp_path / "digests.json").read_text())
    assert set(written) == {bundles.this_platform(), "another-platform"}
    assert {name: Digest(**row) for name, row in written[bundles.this_platform()].items()} == offer.digests


def test_the_same_tools_give_the_same_bundle(offer: Offer, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs/tools"
    parts = [Packed(name, next((theirs / name).iterdir()), offer.digests[name]) for name in offer.digests]
    for path in theirs.rglob("*"):
        path.touch()
    pack(parts, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == offer.file.read_bytes()


def test_what_another_go_built_is_named_and_not_packed(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEUROSCALE_CACHE", str(tmp_path / "theirs"))
    monkeypatch.setattr(tool_cache, "TOOL_NAMES", ("kubeconform", "gitleaks", "etcd"))
    monkeypatch.setattr(packing, "read_digests", lambda _: offer.digests)
    for name, go in (
        ("kubeconform", f"go version go{GO} linux/amd64"),
        ("gitleaks", f"go version go{GO}1 linux/amd64"),
    ):
        tool = tool_cache.tool(name)
        stamp = {"size": tool.binary.stat().st_size, "go": go}
        (tool.folder / tool_cache.STAMP).write_text(json.dumps(stamp))
    output = tmp_path / "out" / "bundle.zip"
    assert packing.main(["--output", str(output)]) == 1
    said = capsys.readouterr().out
    assert f"gitleaks was built by go{GO}1 linux/amd64, and not by the pinned go{GO}: it is not packed." in said
    assert "bundle: not built: etcd, the JSON schemas. Run: python3 scripts/setup.py --for bundle" in said
    with zipfile.ZipFile(output) as archive:
        assert archive.namelist() == [bundles.member("kubeconform", offer.digests["kubeconform"].folder)]


def test_a_release_has_the_licence_of_each_module_in_its_tools(
    offer: Offer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [("a.org/Upper", "v1.0.0", ""), ("b.org/none", "v2.0.0", "")]
    monkeypatch.setattr(packing, "modules_of", lambda _: listed)
    modules, output = tmp_path / "modules", tmp_path / "licences.zip"
    for path in ("a.org/!upper@v1.0.0/MIT-LICENSE.md", "a.org/!upper@v1.0.0/main.go", "go/LICENSE"):
        (modules / path).parent.mkdir(parents=True, exist_ok=True)
        (modules / path).write_text("terms")
    part = Packed("kubeconform", tmp_path, offer.digests["kubeconform"])
    (problem,) = packing.write_licences([part], modules, output)
    assert "b.org/none@v2.0.0. Build with: --keep-build-cache" in problem
    (modules / "b.org/none@v2.0.0").mkdir(parents=True)
    (modules / "b.org/none@v2.0.0/README.md").write_text("free")
    assert packing.write_licences([part], modules, output, {"go@1": [modules / "go/LICENSE"]}) == []
    with zipfile.ZipFile(output) as archive:
        names = ["a.org/Upper@v1.0.0/MIT-LICENSE.md", "b.org/none@v2.0.0/README.md", "go@1/LICENSE"]
        assert archive.namelist() == [*names, "modules-without-a-licence-file.txt"]
        assert archive.read("modules-without-a-licence-file.txt") == b"b.org/none@v2.0.0\n"
