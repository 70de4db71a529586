"""What Hydra keeps of a job that has ended."""

from __future__ import annotations

from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback


class Forget(Callback):
    """Lets go of an ended job's configs: Hydra keeps them until the sweep ends, a third of a megabyte for each cell.

    They are in the job's folder (`.hydra/`). Whether the job failed, and with what, stays.
    """

    def on_job_end(self, config: Any, job_return: JobReturn, **kwargs: Any) -> None:
        """Forget them, in the process that ran the job."""
        job_return.cfg = job_return.hydra_cfg = None
