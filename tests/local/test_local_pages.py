"""The pages of a local platform: `local up` names them, they answer, and they end with it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from request_site import make_platform

pytestmark = pytest.mark.tools


@pytest.fixture
def folder() -> Iterator[Path]:
    # Not pytest's own temporary folder, which the forge's user may not enter.
    with tempfile.TemporaryDirectory(prefix="neuroscale-pages-") as scratch:
        Path(scratch).chmod(0o755)
        yield Path(scratch)


def test_the_pages_start_with_the_platform_and_take_the_developers_token(folder: Path) -> None:
    platform = make_platform(folder)

    def local(*arguments: str) -> str:
        command = [sys.executable, "-P", "-m", "neuroscale", "local", *arguments, "--state", str(folder / "state")]
        done = subprocess.run(command, cwd=platform, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    try:
        said = re.search(r"on a page: (http://\S+) \(sign in with the token in (\S+)\)", local("up", "--no-cluster"))
        assert said is not None
        with httpx.Client(base_url=said[1], timeout=60) as client:
            page = client.get("/sign-in").text
            form_token = page.split('name="form_token" value="')[1][:64]
            token = Path(said[2]).read_text().strip()
            answer = client.post("/sign-in", data={"form_token": form_token, "token": token})
            assert answer.headers["location"] == "/"
            listed = client.get("/services").text
        assert "Signed in as <strong>developer</strong>" in listed
        assert "No service is on the forge's main branch yet" in listed.replace("&#39;", "'")
        assert re.search(r"pages +\d+ +\d+ +\d+ +0 +healthy", local("status"))
    finally:
        local("down", "--delete")
    with pytest.raises(httpx.ConnectError):
        httpx.get(said[1])
