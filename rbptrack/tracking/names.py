"""The names of tags, artifacts and experiments in a store that are not fields of a measurement."""

from __future__ import annotations

from rbptrack.measurement.document import TAG_PREFIX

VIEW_KEY = "rbptrack"
"""The name under which the address of MLflow's page opens the saved view."""


class Kind:
    """Values of the tag `rbptrack.kind`."""

    MEASUREMENT = "measurement"
    SWEEP = "sweep"
    ANALYSIS = "analysis"
    SCORES = "scores"


class Tag:
    """Names of tags. The labels of a measurement have tags, too (`Measurement.tags`)."""

    KIND = TAG_PREFIX + "kind"
    SEAL = TAG_PREFIX + "seal"  # the SHA-256 of record.json
    SWEEP = TAG_PREFIX + "sweep"  # tag of a sweep or analysis: the name of the sweep
    IMPORTED_FROM = TAG_PREFIX + "imported_from"  # tag of scores: the name of their file
    FAILURE = TAG_PREFIX + "failure"  # why a measurement failed
    DAMAGED = TAG_PREFIX + "damaged"  # the faults of a measurement that `verify --repair` marked
    LOGGED_MODEL = TAG_PREFIX + "logged_model"  # tag of a LoggedModel: the hash of what distinguishes models
    COVERS = TAG_PREFIX + "covers"  # tag of a sweep or analysis: the number of measurements that it used
    TRAINING_RUN = TAG_PREFIX + "training_run"  # the ID of the run that trained the model
    MEASUREMENTS = TAG_PREFIX + "measurements"  # tag of a run that trains a model: the IDs of its measurements
    COLOURS = TAG_PREFIX + "colours"  # tag of an experiment: the colour of each dataset's runs (JSON)
    WRITER = TAG_PREFIX + "writer"  # `Connection.lock_name` of the process that began the run
    NOTE = "mlflow.note.content"  # the description on MLflow's page
    VIEW = f"mlflow.sharedViewState.{VIEW_KEY}"  # tag of an experiment: the saved view
    COLOUR = "mlflow.runColor"  # the colour of a run on MLflow's page


PICTURE_FILE = "rank_distribution.png"
STORE_FILE = "store.json"  # in a cell's folder: the store that will get the measurement; not an artifact
SCORES_FILE = "scores.csv"
PAGE_FILE = "report.html"  # the page of a sweep or an analysis
READING_FILE = "read.html"  # the reading page of a sweep, an analysis or a bundle

DEFAULT_EXPERIMENT = "rbptrack"
"""The default name of the experiment of measurements."""

REPORTS_SUFFIX = "-reports"
"""The end of the name of the experiment of sweeps, analyses and scores. It follows the name of the other experiment."""

MEASUREMENTS_NOTE = (
    "Measurements of rbptrack. A run is one model on one dataset: how well the model ranks the right next token. "
    "`rbp_10` is the share of tokens with a rank of at most 10, and `ce` is the cross-entropy in nats per token. "
    "To see charts, click on *Views* and then on *CE and RBP_k*. The laws are in the experiment of the same name that "
    "ends in `-reports`."
)
"""The description of the experiment of measurements (Markdown)."""

REPORTS_NOTE = (
    "Sweeps, reports and imported scores of rbptrack. The artifact `report.html` of a run is the page with its figures."
)
"""The description of the experiment of reports (Markdown)."""
