"""Run the command line: `python -m rbptrack`."""

import sys

from rbptrack.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
