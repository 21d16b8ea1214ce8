"""A change of the pin between two real versions of the tool: an organisation's gate takes the next one."""

from __future__ import annotations

import pytest

from neuroscale import __version__
from pin_lab import NEWER, TwoVersions, two_versions, upgraded

pytestmark = [pytest.mark.tools, pytest.mark.slow]

EDITS = {
    "src/neuroscale/catalog/entries.py": lambda text: text.replace(
        "class Accelerator(Frozen):\n", "class Accelerator(Frozen):\n    shelf: str | None = None\n"
    ),
    "platform/catalog/accelerators/nvidia-l4.yaml": lambda text: f"{text}shelf: upper\n",
    **{
        f"policies/probes-present/{name}.yaml": lambda text: text.replace("allows no time", "leaves no time")
        for name in ("policy", "cases")
    },
    "templates/llm-inference-service/skeleton/networkpolicy.yaml": lambda text: text.replace(
        "  # What is not listed", "  # What none of the rules lists"
    ),
}
"""A field of the catalog with a value in a delivered file, a policy and the template."""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> TwoVersions:
    folder = tmp_path_factory.mktemp("versions")
    made = two_versions(folder, EDITS)
    example = next(iter(sorted((made.adopter.root / "templates/examples").glob("gemma*qat.yaml"))))
    done = made.adopter.run("new", "--answers", example)
    assert done.returncode == 0, done.stderr
    made.adopter.git("add", "--all")
    made.adopter.git("commit", "--quiet", "--message=A service")
    upgraded(made, folder)
    return made


@pytest.mark.parametrize("option", ["--only-read-head", "--strict"])
def test_the_next_version_passes_and_the_verdict_names_both_tools(two: TwoVersions, option: str) -> None:
    status, verdict, printed = two.gate("upgrade", option)
    assert status == 0, printed
    (note,) = [note for note in verdict["notes"] if note.startswith("Judged by")]
    assert note == f"Judged by neuroscale {__version__}, the base's pin, and by {NEWER}, the change's."
    assert verdict["tool_version"] == __version__
