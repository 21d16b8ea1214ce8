"""`.venv/bin/python scripts/accuracy`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from accuracy.command import main  # noqa: E402

main()
