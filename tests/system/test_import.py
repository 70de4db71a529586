"""Test that `import rbptrack` changes no global state of the user's process."""

from __future__ import annotations

import subprocess
import sys

COMPARE_STATES = """
import logging, os, warnings
import altair, mlflow, pandas, torch, transformers
transformers.PreTrainedModel  # this makes torch set an environment variable

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
for earlier, later in zip(before, state()):
    assert earlier == later, (earlier, later)
"""


def test_import_rbptrack_changes_no_environment_variables_options_handlers_or_threads() -> None:
    subprocess.run([sys.executable, "-c", COMPARE_STATES], check=True)
