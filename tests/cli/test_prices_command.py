"""`neuroscale prices update`: from an exported file to the catalog's file, with its changes, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from command_line import Said, commands
from neuroscale.catalog import load_catalog
from neuroscale.repo.snapshot import FolderSnapshot
from price_exports import aws, google, google_skus, sku
from roots import ROOT

LIST = "platform/catalog/prices/google-cloud-us-central1.yaml"
Run = Callable[..., Said]


@pytest.fixture
def platform(tmp_path: Path) -> Path:
    root = tmp_path / "platform-repository"
    shutil.copytree(ROOT / "platform/catalog", root / "platform/catalog")
    shutil.copytree(ROOT / "templates", root / "templates")
    shutil.copyfile(ROOT / "platform/settings.yaml", root / "platform/settings.yaml")
    return root


@pytest.fixture
def update(platform: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    return commands(capsys, monkeypatch, "prices", "update", "--repository", platform)


def written(tmp_path: Path, value: object) -> Path:
    file = tmp_path / "export.json"
    file.write_text(json.dumps(value))
    return file


def test_an_export_becomes_a_list_and_a_second_run_changes_nothing(tmp_path: Path, platform: Path, update: Run) -> None:
    file = written(tmp_path, google())
    said = update("--from", file, "--region", "us-central1")
    assert said.status == 0, said.err
    assert f"{LIST}: written" in said.out
    assert "Left alone: Nvidia Tesla K80 GPU running in Iowa (no accelerator is known by this description)" in said.out
    assert "No environment uses google-cloud-us-central1" in said.out
    assert "or renew google-cloud or google-cloud-machines with --list" in said.out
    assert "google-cloud-us-central1" in load_catalog(FolderSnapshot(platform)).prices
    before = (platform / LIST).read_bytes()
    again = update("--from", file, "--region", "us-central1", "--json")
    assert (again.json["changed"], again.json["changes"]) == ([], [])
    assert (platform / LIST).read_bytes() == before


def test_the_shipped_list_is_renewed_and_only_what_the_file_lacks_stays_old(
    tmp_path: Path, platform: Path, update: Run
) -> None:
    today = datetime.now(UTC)
    skus = [
        sku("AAAA-0001", "Nvidia L4 GPU running in Iowa", 560_040_000, day=today.isoformat()),
        sku("AAAA-0002", "G2 Instance Core running in Iowa", 24_988_000, group="CPU", day=today.isoformat()),
        sku(
            "AAAA-0003", "G2 Instance Ram running in Iowa", 2_927_000, group="RAM", unit="GiBy.h", day=today.isoformat()
        ),
    ]
    pages = [{**google(*skus[:1]), "nextPageToken": "x"}, google(*skus[1:])]
    for index, export in enumerate(([google(*skus)], pages, skus)):
        said = update("--from", written(tmp_path, export), "--list", "google-cloud")
        assert said.status == 0, said.err
        assert ("1 x nvidia-l4: 0.72 to 0.56 USD an hour" in said.out) is (index == 0)
        assert ("google-cloud.yaml: is up to date" in said.out) is (index > 0)
        assert "No environment uses" not in said.out
    there = load_catalog(FolderSnapshot(platform)).prices["google-cloud"]
    assert there.region == "us-central1"
    dates = {price.accelerator: price.date or there.date for price in there.prices}
    assert dates["nvidia-l4"] == today.date()
    assert dates["tpu-v6e-1"] == there.date < today.date()
    other = update("--from", written(tmp_path, google()), "--region", "europe-west1", "--list", "google-cloud")
    assert other.status == 2


def test_a_list_with_a_missing_page_is_refused(tmp_path: Path, update: Run) -> None:
    pages = [{**google(), "nextPageToken": "x"}, {**google(), "nextPageToken": "y"}]
    said = update("--from", written(tmp_path, pages))
    assert said.status == 2
    assert "does not have the pages of one answer" in said.err


def test_a_large_change_is_told_and_json_says_it(tmp_path: Path, platform: Path, update: Run) -> None:
    update("--from", written(tmp_path, google()), "--region", "us-central1")
    skus = google_skus()
    skus[4] = sku("BBBB-0001", "Nvidia H100 80GB GPU running in Iowa", 0, units="4")
    file = written(tmp_path, google(*skus))
    told = update("--from", file, "--region", "us-central1", "--factor", "2", "--json").json
    assert told["changes"] == [{"what": "1 x nvidia-h100-80gb", "before": "9.796", "after": "4.00", "large": True}]
    assert told["changed"] == [LIST]
    update("--from", written(tmp_path, google()), "--region", "us-central1")
    said = update("--from", written(tmp_path, google(*skus)), "--region", "us-central1")
    assert (
        "Changes more than 1.5-fold, or now includes other parts: 1 x nvidia-h100-80gb: 9.796 to 4.00 USD an hour"
        in said.out
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--list", "../escape"), "cannot be the name of a list"),
        (("--list", "google-cloud"), "region: is 'US regions', and the file's prices are of 'eu-west-1'"),
        (("--region", "mars-1"), "no accelerators in 'mars-1'"),
        (("--local",), "--local: names a forge, and no pull request is asked for. Add --pull-request"),
        (("--pull-request", "--local"), "does not hold a local platform that runs. Start it: neuroscale local up"),
        (("--pull-request", "--local", "--remote", "other"), "so two forges are named"),
    ],
)
def test_a_mistake_gets_a_sentence_and_writes_nothing(
    tmp_path: Path, platform: Path, update: Run, arguments: tuple[str, ...], words: str
) -> None:
    before = {path: path.read_bytes() for path in platform.rglob("*") if path.is_file()}
    said = update("--from", written(tmp_path, aws()), *arguments)
    assert said.status == 2
    assert words in said.err
    assert {path: path.read_bytes() for path in platform.rglob("*") if path.is_file()} == before


def test_a_file_that_is_not_there_gets_a_sentence(tmp_path: Path, update: Run) -> None:
    said = update("--from", tmp_path / "nothing.json")
    assert said.status == 2
    assert "nothing.json: cannot be read" in said.err
