"""Runs the command line as `python -m lgjax`."""

import sys

from lgjax.cli import main

if __name__ == "__main__":
    sys.exit(main())
