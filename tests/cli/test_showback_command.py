"""`neuroscale showback` against an OpenCost that answers over HTTP, and the worked example of docs/showback.md."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from cluster_lab import run
from command_line import Said
from neuroscale.actions import chosen_metrics
from neuroscale.planning.plan import Tenancy, dump_plan
from opencost_answers import SYSTEM, costs, envelope, key
from opencost_server import opencost_server
from plan_factory import make_plan, make_request
from repositories import Repository
from roots import CHECKOUT, ROOT

DOCUMENT = CHECKOUT / "docs/showback.md"
WINDOW = "2026-11-01"
HOURLY = Decimal("3.67")

SERVICES = {
    "team-a": ("chat-sparse", "google/gemma-4-26B-A4B-it", "0.151"),
    "team-b": ("chat-dense", "google/gemma-4-31B-it", "1"),
}
TWO_TEAMS = envelope(
    {
        **{
            key(service, team, ratio=ratio): costs(float(HOURLY * 24), 24)
            for team, (service, _, ratio) in SERVICES.items()
        },
        SYSTEM: costs(4),
        "__idle__": costs(12),
    }
)

Showback = Callable[..., Said]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A platform repository with the two teams' services."""
    root = tmp_path_factory.mktemp("repository")
    for folder in ("platform", "templates"):
        shutil.copytree(ROOT / folder, root / folder)
    for team, (service, model, _) in SERVICES.items():
        request = make_request(service=service, model=model, environment="prod")
        tenancy = Tenancy(team=team, owner="owner", cost_center=team, namespace=team)
        place = root / "manifests/prod" / service
        place.mkdir(parents=True)
        plan = make_plan(request, accelerator="nvidia-a100-80gb", tenancy=tenancy)
        (place / "plan.yaml").write_text(dump_plan(plan))
    return root


@pytest.fixture
def opencost() -> Iterator[str]:
    with opencost_server(TWO_TEAMS) as url:
        yield url


@pytest.fixture
def showback(opencost: str, repository: Path) -> Showback:
    def ask(*arguments: object) -> Said:
        return run("showback", "--window", WINDOW, "--opencost-url", opencost, "--repository", repository, *arguments)

    return ask


def block(name: str) -> str:
    """What stands below an example's mark in the document."""
    rest = DOCUMENT.read_text().split(f"<!-- example: {name} -->\n")[1]
    found = re.match(r"```text\n(.*?)\n```\n|((?:\|[^\n]*\n)+)", rest, re.DOTALL)
    assert found is not None
    return found[1] or found[2]


# ----------------------------------------------------------------------------------------- the worked example


def test_two_teams_on_equal_hardware_are_charged_as_the_document_shows(showback: Showback, opencost: str) -> None:
    said = showback()
    assert said.status == 0, said.err
    shown = "\n".join(line.rstrip() for line in said.out.replace(opencost, "http://127.0.0.1:9003").splitlines()[:7])
    assert shown == block("neuroscale showback --window 2026-11-01")


def test_a_million_tokens_cost_what_the_document_says(showback: Showback) -> None:
    rows = {row["name"]: row for row in showback("--json").json["rows"]}
    speeds = {"team-a": Decimal("177.1"), "team-b": Decimal("40.3")}

    def price(column: str) -> list[str]:
        seconds = 24 * 3600
        of = (Decimal(rows[team][column]) * 10**6 / (speed * seconds) for team, speed in speeds.items())
        return [f"{amount:.2f}" for amount in of]

    lines = [f"| {column} | {' | '.join(price(column))} |" for column in ("metered", "weighted")]
    assert block("cost of a million tokens").splitlines()[2:] == lines


# ----------------------------------------------------------------------------------------------- its forms


def test_json_adds_up(showback: Showback) -> None:
    found = showback("--json").json
    assert (found["bill"], found["currency"].partition(",")[0]) == ("192.16", "USD")
    for column in ("total", "weighted_total"):
        assert sum(Decimal(row[column]) for row in found["rows"]) == Decimal(found["bill"])
    assert (found["metered"], found["idle"], found["shared"], found["undistributed"]) == (
        "176.16",
        "12.00",
        "4.00",
        "0.00",
    )
    assert found["window"] == {"start": "2026-11-01T00:00:00+00:00", "end": "2026-11-02T00:00:00+00:00"}


def test_a_table_for_spreadsheets_adds_up(showback: Showback) -> None:
    rows = list(csv.DictReader(io.StringIO(showback("--csv").out)))
    assert {row["cost-center"]: row["total_usd"] for row in rows} == {"team-a": "96.08", "team-b": "96.08"}
    assert sum(Decimal(row["weighted_total_usd"]) for row in rows) == Decimal("192.16")


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("model", {"google/gemma-4-26B-A4B-it", "google/gemma-4-31B-it"}),
        ("environment", {"prod"}),
        ("service", {"team-a/chat-sparse", "team-b/chat-dense"}),
    ],
)
def test_rows_by_what_the_repository_knows(showback: Showback, by: str, names: set[str]) -> None:
    assert {row["name"] for row in showback("--by", by, "--json").json["rows"]} == names


def test_a_warning_makes_the_exit_status_1_and_stands_beside_the_table(repository: Path) -> None:
    with opencost_server(envelope({key("chat-dense", "team-b"): costs(10, 1)})) as url:
        said = run("showback", "--window", WINDOW, "--opencost-url", url, "--repository", repository, "--csv")
    assert said.status == 1
    assert "OpenCost gives no idle costs" in said.err
    assert len(said.out.splitlines()) == 2


def test_names_from_opencost_are_text_alone(repository: Path) -> None:
    row = key("a", "=cmd()\x1b[31m[bold]", ratio="1")
    with opencost_server(envelope({row: costs(10, 1), "__idle__": costs(0)})) as url:
        asked = ("showback", "--window", WINDOW, "--opencost-url", url, "--repository", repository)
        people, table = run(*asked), run(*asked, "--csv")
    assert "\x1b" not in people.out + table.out
    assert r"=cmd()\x1b[31m[bold]" in people.out
    assert "'=cmd()" in table.out


# ------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--by", "cost-centre"), "Did you mean 'cost-center'?"),
        (("--environment", "prd"), "Did you mean 'prod'?"),
        (("--json", "--csv"), "Give one of them."),
        (("--context", "kind"), "two places are named"),
    ],
)
def test_a_wrong_option_is_told(showback: Showback, arguments: tuple[str, ...], told: str) -> None:
    said = showback(*arguments)
    assert (said.status, told in said.err) == (2, True), said.err


def test_where_opencost_gives_no_number_there_is_no_bill_and_no_picture(repository: Path, tmp_path: Path) -> None:
    body = json.loads(TWO_TEAMS)
    body["data"][0]["__idle__"]["totalCost"] = None
    picture = tmp_path / "bill.svg"
    with opencost_server(json.dumps(body)) as url:
        asked = ("--opencost-url", url, "--repository", repository, "--picture", picture)
        said = run("showback", "--window", WINDOW, *asked)
    assert (said.status, said.out) == (2, "")
    assert "no number as totalCost of '__idle__'" in said.err
    assert not picture.exists()


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_a_picture_is_drawn_of_the_rows(showback: Showback, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"bill.{suffix}"
    assert showback("--picture", path).status == 0
    if suffix == "svg":
        text = path.read_text()
        assert all(word in text for word in ("team-a", "team-b", "96.08", "Bill 192.16 USD"))


def test_the_local_meter_is_found_and_another_named_place_is_asked_instead(
    opencost: str, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chosen_metrics, "runs_in", lambda folder: folder == repository / ".state/local")
    monkeypatch.setattr(chosen_metrics, "address_in", lambda folder: opencost)
    monkeypatch.setattr(chosen_metrics, "local_state", lambda where: None)
    asked = ("showback", "--window", WINDOW, "--repository", repository)
    assert f"from OpenCost at {opencost}" in run(*asked).out
    elsewhere = run(*asked, "--kubeconfig", tmp_path / "missing")
    assert elsewhere.status == 2
    assert "missing" in elsewhere.err
    assert "two places" in run(*asked, "--opencost-url", opencost, "--state", tmp_path).err


def test_nodes_without_a_price_stand_beside_the_bill_and_fail_a_strict_run(
    opencost: str, repository: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(chosen_metrics, "local_state", lambda where: None)
    monkeypatch.setattr(chosen_metrics, "address_in", lambda folder: opencost)
    monkeypatch.setattr(chosen_metrics, "unpriced_in", lambda folder: ("simulated-a", "this-machine"))
    asked = ("showback", "--window", WINDOW, "--repository", repository, "--state", tmp_path)
    said = run(*asked)
    lines = said.out.splitlines()
    assert lines[1].startswith("Bill: ")
    assert lines[2].startswith("Note: No price list has a price of simulated-a, this-machine: what runs there is")
    assert said.out.count("the bill is too low") == 1
    assert said.status == 0
    assert run(*asked, "--strict").status == 1
    found = run(*asked, "--json").json
    assert found["nodes_without_price"] == ["simulated-a", "this-machine"]
    monkeypatch.setattr(chosen_metrics, "unpriced_in", lambda folder: ())
    assert run(*asked, "--strict").status == 0
    assert run(*asked, "--json").json["nodes_without_price"] == []


@pytest.mark.parametrize(
    ("total", "fields", "told"),
    [
        (0, {"cpuCoreHours": 8}, "OpenCost charges nothing for accelerators or CPU of team-b/chat-dense"),
        (9, {"gpuCost": 0, "cpuCost": 9}, "OpenCost charges nothing for accelerators or CPU of team-b/chat-dense"),
        (
            *(2.04, {"gpuHours": 0, "gpuCost": 0, "cpuCost": 2.04, "cpuCoreHours": 7 * 24}),
            "OpenCost counts no hours of nvidia.com/gpu for team-b/chat-dense (nvidia-a100-80gb)",
        ),
        (
            *(7.037, {"gpuHours": 0, "gpuCost": 0, "cpuCost": 5.31065, "cpuCoreHours": 168}),
            "OpenCost charges team-b/chat-dense 0.031611 USD for an hour of a CPU core: its placeholder",
        ),
        (
            *(7.0, {"gpuHours": 0, "gpuCost": 0, "cpuCost": 5.0, "ramCost": 1.62701, "ramByteHours": 384 * 2**30}),
            "OpenCost charges team-b/chat-dense 0.004237 USD for an hour of a GiB of memory: its placeholder",
        ),
        (0.95 * 24, {}, "OpenCost charges team-b/chat-dense 0.95 USD for an hour of a GPU, which is its placeholder"),
    ],
)
def test_a_meter_that_lacks_a_price_is_warned_of_beside_the_bill(
    total: float, fields: dict[str, float], told: str, repository: Path
) -> None:
    rows = {key("chat-dense", "team-b"): costs(total, 24, **fields), "__idle__": costs(1)}
    with opencost_server(envelope(rows)) as url:
        said = run("showback", "--window", WINDOW, "--opencost-url", url, "--repository", repository)
    assert said.status == 1
    assert said.out.splitlines()[2].startswith(f"Warning: {told}")


def test_placeholders_of_cpu_and_memory_beside_a_priced_gpu_are_noted(repository: Path) -> None:
    """They may be the real prices of some of Google's machines."""
    fields = {"gpuCost": 80.0, "cpuCost": 6.06931, "cpuCoreHours": 192}
    rows = {key("chat-dense", "team-b"): costs(86.07, 24, **fields), "__idle__": costs(1)}
    with opencost_server(envelope(rows)) as url:
        said = run("showback", "--window", WINDOW, "--opencost-url", url, "--repository", repository)
    assert said.status == 0
    assert "Note: OpenCost charges team-b/chat-dense 0.031611 USD for an hour of a CPU core" in said.out


def test_a_swapped_model_is_charged_for_its_own_time(tmp_path: Path) -> None:
    made = Repository(tmp_path / "repository")
    for folder in ("platform", "templates"):
        shutil.copytree(ROOT / folder, made.root / folder)
    for model, merged in (("old/model", "2026-10-01T00:00:00Z"), ("new/model", "2026-11-01T12:10:00Z")):
        request = make_request(service="chat", model="google/gemma-4-31B-it", environment="prod")
        tenancy = Tenancy(team="one", owner="owner", cost_center="one", namespace="one")
        plan = make_plan(request, model=model, tenancy=tenancy)
        made.commit({"manifests/prod/chat/plan.yaml": dump_plan(plan)}, at=merged)
    with opencost_server(envelope({key("chat", "one"): costs(10, 1), "__idle__": costs(0)})) as url:
        asked = ("showback", "--window", WINDOW, "--by", "model", "--opencost-url", url, "--repository", made.root)
        said = run(*asked)
    assert said.status == 0, said.err
    assert [line.split()[0] for line in said.out.splitlines()[4:6]] == ["new/model", "old/model"]
    assert said.out.count("10.00") >= 4
    changed = "The plan of prod/chat (old/model on nvidia-l4, then new/model on nvidia-l4) changed within the window"
    assert changed in said.out


def test_a_state_folder_without_a_meter_says_how_to_start_one(repository: Path, tmp_path: Path) -> None:
    said = run("showback", "--window", WINDOW, "--repository", repository, "--state", tmp_path)
    assert said.status == 2
    assert "neuroscale local up" in said.err


@pytest.mark.parametrize(
    ("options", "told"), [(["costs"], "did you mean|cost"), (["cost", "none"], "Give one of them")]
)
def test_a_wrong_part_of_the_local_platform_is_told(options: list[str], told: str, tmp_path: Path) -> None:
    said = run("local", "up", "--state", tmp_path, *(word for one in options for word in ("--with", one)))
    assert said.status == 2
    assert re.search(told, said.err)


def test_the_meter_needs_a_cluster(tmp_path: Path) -> None:
    said = run("local", "up", "--state", tmp_path, "--no-cluster", "--with", "cost")
    assert said.status == 2
    assert "--no-cluster" in said.err
