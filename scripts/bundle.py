"""Packs the built tools into one file, from which `scripts/setup.py --bundle` takes them; run by `make bundle`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from neuroscale.tools.packing import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
