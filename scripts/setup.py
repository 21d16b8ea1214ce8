"""Sets up everything that the platform needs; run by `make setup`.

Any Python 3 can read this file, so that a user of an old one reads which version is needed, not a syntax error.
"""

import os
import sys

if sys.version_info < (3, 11):
    sys.exit(
        "set-up: Python 3.11 or newer is needed, and this is %d.%d. "
        "Install a newer one, or name an installed one: make PYTHON=python3.12 ..." % sys.version_info[:2]
    )

# The package's own modules that need only the standard library.
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from neuroscale.tools.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
