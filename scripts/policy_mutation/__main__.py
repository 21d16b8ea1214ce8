"""`.venv/bin/python scripts/policy_mutation`."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)

from policy_mutation.command import main  # noqa: E402

main()
