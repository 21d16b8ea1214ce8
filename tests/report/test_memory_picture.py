"""The picture of an accelerator's memory: what is seen on it, and when none is written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from examples import examples
from neuroscale.cli import app
from neuroscale.core.errors import InputError
from neuroscale.planning.fit.result import memory_of
from neuroscale.planning.plan import Memory
from neuroscale.report.memory_picture import write_picture
from roots import ROOT

FITS = Memory(weights=16.44, kv_cache=1.24, overhead=1.25, usable=19.76, free=0.83)
REFUSED = Memory(weights=29.5, kv_cache=1.1, overhead=1.66, usable=19.76, free=-12.5)
EXAMPLE = ROOT / "templates/examples/gemma-4-26b-a4b-qat.yaml"

BLUE, ORANGE, GREY, LIGHT, RED = (47, 93, 155), (232, 176, 74), (95, 107, 118), (243, 245, 247), (179, 38, 30)


def words(path: Path) -> list[str]:
    """Every text of an SVG picture."""
    tree = ElementTree.fromstring(path.read_text())
    return [found for node in tree.iter() if node.tag.endswith("}text") and (found := "".join(node.itertext()))]


def runs(path: Path, height: float) -> list[tuple[tuple[int, int, int], int]]:
    """The colours of one row of pixels, from left to right, with how many there are of each."""
    with Image.open(path) as image:
        picture = image.convert("RGB")
    row = int(picture.height * height)
    pixels = [picture.getpixel((column, row)) for column in range(picture.width)]
    return [(colour, len(list(found))) for colour, found in groupby(pixels)]  # type: ignore[misc]


def test_the_parts_of_the_bar_are_as_long_as_their_shares(tmp_path: Path) -> None:
    write_picture(FITS, "a model", tmp_path / "bar.png")
    found = runs(tmp_path / "bar.png", 0.42)  # above the numbers
    lengths = {colour: sum(length for one, length in found if one == colour) for colour in (BLUE, ORANGE, GREY, LIGHT)}
    # The bar is 0.92 of the picture's 1,280 pixels; lines between the parts take a few.
    for colour, size in ((BLUE, 16.44), (ORANGE, 1.24), (GREY, 1.25), (LIGHT, 0.83)):
        assert lengths[colour] == pytest.approx(size / 19.76 * 0.92 * 1280, abs=5)


def test_what_has_no_room_is_struck_through_from_the_limit_on(tmp_path: Path) -> None:
    write_picture(REFUSED, "a model", tmp_path / "bar.png")
    found = runs(tmp_path / "bar.png", 0.42)
    left = 0
    for colour, length in found:
        if colour == RED:
            break
        left += length
    whole = 29.5 + 1.1 + 1.66
    assert left == pytest.approx((0.04 + 0.92 * 19.76 / whole) * 1280, abs=5)
    assert sum(colour == RED for colour, _ in found) > 5
    assert sum(length for colour, length in found if colour == BLUE) == pytest.approx(19.76 / whole * 1178, abs=5)


def test_it_says_what_it_shows_in_gib(tmp_path: Path) -> None:
    write_picture(FITS, "google/gemma-4-26B-A4B-it on 1 x NVIDIA L4", tmp_path / "fits.svg")
    told = words(tmp_path / "fits.svg")
    for expected in (
        "google/gemma-4-26B-A4B-it on 1 x NVIDIA L4",
        "within the limit",
        "limit 19.76",
        "GiB (2^30 bytes) on each accelerator",
        "weights 16.44",
        "KV cache 1.24",
        "overhead 1.25",
        "free 0.83",
    ):
        assert expected in told
    write_picture(REFUSED, "a model", tmp_path / "refused.svg")
    told = words(tmp_path / "refused.svg")
    assert {"12.50 GiB beyond the limit", "limit 19.76", "beyond the limit"} <= set(told)
    assert "free -12.50" not in told


@pytest.mark.parametrize("title", ["$x_1^2$ & <b>bold</b>", "模型", "two\nlines\x1b[31m", "", "x" * 5000])
@pytest.mark.parametrize("suffix", [".svg", ".PNG"])
def test_any_title_is_drawn_as_plain_text(tmp_path: Path, title: str, suffix: str) -> None:
    path = tmp_path / f"bar{suffix}"
    write_picture(FITS, title, path)
    if suffix == ".svg":
        told = words(path)
        assert "weights 16.44" in told
        assert title not in ("$x_1^2$ & <b>bold</b>", "模型") or title in told


def test_the_same_numbers_give_the_same_bytes_whoever_draws_them(tmp_path: Path) -> None:
    drawn = (
        "import sys; from pathlib import Path; from neuroscale.planning.plan import Memory;"
        "from neuroscale.report.memory_picture import write_picture;"
        f"memory = Memory(**{FITS.model_dump()});"
        "[write_picture(memory, 'a model', Path(sys.argv[1]) / name) for name in ('bar.svg', 'bar.png')]"
    )
    (tmp_path / "matplotlibrc").write_text("figure.facecolor: red\nsvg.fonttype: path\n")
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed}
        if seed == "2":
            environment["MATPLOTLIBRC"] = str(tmp_path / "matplotlibrc")
        subprocess.run([sys.executable, "-c", drawn, folder], check=True, timeout=120, env=environment)
    for name in ("bar.svg", "bar.png"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("name", ["bar.jpg", "bar", "bar.svgz"])
def test_another_format_is_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=r"\.svg or \.png"):
        write_picture(FITS, "a model", tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_named_and_stays_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_picture(FITS, "a model", tmp_path / "missing" / "bar.svg")
    (tmp_path / "folder.svg").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_picture(FITS, "a model", tmp_path / "folder.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.svg"]


sizes = st.floats(0, 1e15) | st.sampled_from([0.0, 0.001, 1e300])


@settings(max_examples=examples(15), deadline=None)
@given(weights=sizes, cache=sizes, overhead=sizes, usable=sizes, free=st.floats(-1e15, 1e15))
def test_any_numbers_give_a_picture(
    tmp_path_factory: pytest.TempPathFactory, weights: float, cache: float, overhead: float, usable: float, free: float
) -> None:
    path = tmp_path_factory.mktemp("any") / "bar.svg"
    write_picture(Memory(weights=weights, kv_cache=cache, overhead=overhead, usable=usable, free=free), "a model", path)
    assert words(path)


of_a_card = st.integers(0, 200 * 2**30)


@given(of_a_card, of_a_card, of_a_card, st.integers(-(2**24), 2**24) | of_a_card)
def test_no_rounding_draws_what_fits_beyond_the_limit_or_what_does_not_within_it(
    weights: int, cache: int, overhead: int, left: int
) -> None:
    usable = max(0, weights + cache + overhead + left)
    memory = memory_of(weights, cache, overhead, usable)
    assert (memory.free >= 0) is (weights + cache + overhead <= usable)
    assert memory.weights + memory.kv_cache + memory.overhead + memory.free == pytest.approx(memory.usable, abs=1e-6)
    for rounded, size in ((memory.weights, weights), (memory.kv_cache, cache), (memory.overhead, overhead)):
        assert rounded == pytest.approx(size / 2**30, abs=0.031)


def test_a_fit_is_drawn_where_it_is_asked_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "fit.svg"
    asked = ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--accelerator", "nvidia-l4", "--repository", str(ROOT)]
    monkeypatch.setattr(sys, "argv", ["neuroscale", "fit", *asked, "--picture", str(picture), "--json"])
    with pytest.raises(SystemExit):
        app.main()
    memory = json.loads(capsys.readouterr().out)["memory_gib"]
    assert f"weights {memory['weights']:.2f}" in words(picture)
    assert f"limit {memory['usable']:.2f}" in words(picture)


def test_a_plan_is_drawn_where_it_is_asked_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["neuroscale", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        return int(ended.value.code or 0)

    picture = tmp_path / "plan.svg"
    assert command("plan", EXAMPLE, "--repository", ROOT, "--picture", picture) == 0
    assert "google/gemma-4-26B-A4B-it-qat-w4a16-ct on 1 x NVIDIA L4" in words(picture)
    capsys.readouterr()
    assert command("plan", EXAMPLE, "--repository", ROOT, "--picture", tmp_path / "plan.gif") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Name a .svg or .png file" in said.err
    # The gate's environment has no matplotlib.
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert command("plan", EXAMPLE, "--repository", ROOT, "--picture", tmp_path / "other.svg") == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--picture: needs matplotlib, which is not installed here. Run `make setup`" in said.err
    assert not (tmp_path / "other.svg").exists()


def test_drawing_is_imported_by_nothing_that_draws_nothing() -> None:
    code = (
        "import sys; from neuroscale.cli import app; import neuroscale.report.memory_picture;"
        f"sys.argv = ['neuroscale', 'plan', {str(EXAMPLE)!r}, '--repository', {str(ROOT)!r}]\n"
        "try:\n    app.main()\nexcept SystemExit:\n    pass\n"
        "assert not any(name.startswith('matplotlib') for name in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stdout=subprocess.DEVNULL)
