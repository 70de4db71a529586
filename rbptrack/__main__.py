"""`python -m rbptrack` and the command `rbptrack`."""

import sys

from rbptrack.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
