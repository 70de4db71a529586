"""What `import rbptrack` does to the user's process."""

from __future__ import annotations

import subprocess
import sys

UNCHANGED = """
import logging, os, warnings
import altair, mlflow, pandas, torch, transformers
transformers.PreTrainedModel  # with it torch sets a variable of its own

def state():
    registered = altair.theme.names(), altair.renderers.names()
    active = altair.theme.active, altair.renderers.active, altair.data_transformers.active
    options = {name: repr(pandas.get_option(name)) for name in pandas._config.config._registered_options}
    return dict(os.environ), registered, active, options, logging.root.handlers[:], torch.get_num_threads()

warnings.simplefilter("ignore")
before = state()
import rbptrack
rbptrack.measure, rbptrack.RankCallback
import rbptrack.analysis, rbptrack.stats, rbptrack.figures, rbptrack.ranks
for one, other in zip(before, state()):
    assert one == other, (one, other)
"""


def test_importing_rbptrack_changes_nothing_in_the_process() -> None:
    subprocess.run([sys.executable, "-c", UNCHANGED], check=True)
