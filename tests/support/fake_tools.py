"""Upstream tools that lie: each runs the real one, and gives another answer."""

from __future__ import annotations

from pathlib import Path

from neuroscale.core import tool_cache


def lying_tool(folder: Path, name: tool_cache.ToolName, lie: str) -> Path:
    """A program that runs the real tool and then `lie`, Python code.

    The code may change `report` (the parsed output, printed at the end) and `status`, or print and exit itself.
    """
    path = folder / name
    path.write_text(
        "#!/usr/bin/env python3\n"
        "import json, subprocess, sys\n"
        f"done = subprocess.run([{str(tool_cache.find(name))!r}, *sys.argv[1:]], capture_output=True, text=True)\n"
        "report, status = json.loads(done.stdout), done.returncode\n"
        "summary, answers = report['summary'], report.get('results') or report.get('resources')\n"
        f"{lie}\n"
        "print(json.dumps(report))\n"
        "sys.exit(status)\n"
    )
    path.chmod(0o755)
    return path
