"""Campaigns of hours: what goes wrong is made to go wrong, and what was lost is recorded.

    python -m tests.campaigns all RESULTS.jsonl         # every campaign, then the table of docs/reliability.md
    python -m tests.campaigns kills RESULTS.jsonl --only alone --signal SIGKILL --times 20

Each continues where RESULTS.jsonl stops. `python -m tests.campaigns NAME --help` explains one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

CAMPAIGNS = ("kills", "power_cut", "fuzz", "faults", "cluster_walk", "endurance", "reliability")
BESIDES = ("architectures",)  # a survey with a results file of its own


def main() -> int:
    """The exit code: 1 where a campaign lost something."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name == "all":
        own = [sys.executable, "-m", "tests.campaigns"]
        return max(subprocess.run([*own, campaign, *sys.argv[2:]]).returncode for campaign in CAMPAIGNS)
    if name not in (*CAMPAIGNS, *BESIDES):
        print(f"{__doc__}\nCampaigns: {', '.join((*CAMPAIGNS, *BESIDES))}", file=sys.stderr)
        return 2
    campaign = import_module(f"tests.campaigns.{name}")
    parser = argparse.ArgumentParser(
        prog=f"python -m tests.campaigns {name}",
        description=campaign.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("results", type=Path)
    campaign.options(parser)
    return int(campaign.main(parser.parse_args(sys.argv[2:])))


if __name__ == "__main__":
    sys.exit(main())
