"""Runs the command line as `python -m lgjax.cli`."""

import sys

from lgjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
