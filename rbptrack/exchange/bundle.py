"""Write and read bundles. A bundle is a zip file with the records and tables of measurements, without code."""

from __future__ import annotations

import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput
from rbptrack.base.files import check_regular_file, replacing
from rbptrack.exchange.archive import BUNDLED_FILES, MANIFEST, unpack_bundle
from rbptrack.exchange.faults import faults_of_measurement
from rbptrack.exchange.intake import imported_line
from rbptrack.measurement.build import compute_histogram
from rbptrack.measurement.columns import labels_of
from rbptrack.measurement.files import HISTOGRAM_FILE, RANKS_FILE, RECORD_FILE
from rbptrack.measurement.record import MeasurementRecord, read_measurement
from rbptrack.tracking import Outbox, Store
from rbptrack.tracking.names import READING_FILE


def export_bundle(runs: Runs, path: Path, *, reading: str = "") -> int:
    """Write measurements to one bundle, completely or not at all, and return their number.

    A bundle contains the ids and texts of all tokens, so whoever gets it can read the documents. It does not contain
    files that an import can compute, or config.yaml, which holds paths of this machine.

    Args:
        runs: the measurements. They must come from a store.
        path: the bundle.
        reading: the reading page (HTML) to put into the bundle, or empty. An import ignores it.

    Raises:
        BadInput: the path is a link or a folder, or the runs do not come from a store.
        MissingArtifact: a file of a measurement is missing, or was changed after the measurement.

    """
    store = runs.store
    if not isinstance(store, Store):
        raise BadInput("only measurements of a store can be exported as a bundle")
    with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as bundle:
        for run_id, labels in zip(runs["run_id"], labels_of(runs.frame), strict=True):
            with tempfile.TemporaryDirectory() as folder:
                record = _copy_measurement(store, run_id, labels, Path(folder))
                for file in (RECORD_FILE, *sorted(record.files)):
                    bundle.write(Path(folder, file), f"{record.fingerprint}/{file}")
        if reading:
            bundle.writestr(READING_FILE, reading)
        bundle.writestr(MANIFEST, json.dumps({"format": "rbptrack bundle", "measurements": len(runs)}))
    return len(runs)


def import_bundle(path: Path, store: Store) -> list[str]:
    """Check all measurements of a bundle, and add those that the store does not have yet: all of them or none.

    The numbers of a measurement are compared with those that its ranks give, and its fingerprint with the hash of its
    identity.

    Returns:
        Lines about the import for the user.

    Raises:
        BadInput: the file is not a bundle, or a measurement in it has a fault. Nothing is imported.
        StoreAway: the store does not answer. If measurements wait in mlruns/cells, the message says how many.

    """
    check_regular_file(path, "import")
    num_new = 0
    with Outbox(store).delivering_together() as folder_of_import:
        fingerprints = unpack_bundle(path, folder_of_import)
        _check_measurements(folder_of_import, fingerprints, path)
        for fingerprint in fingerprints:
            folder = folder_of_import / fingerprint
            if store.find_equivalent(read_measurement(folder)):
                shutil.rmtree(folder)
                continue
            _complete_measurement(folder, path)
            num_new += 1
    return [imported_line(num_new, len(fingerprints))]


def _copy_measurement(store: Store, run_id: str, labels: Mapping[str, object], folder: Path) -> MeasurementRecord:
    """Copy a measurement's record, and those of its files that a bundle may contain, to a folder. Return the record.

    The record gets the present labels of the run. It does not say in which folder the model is, on this machine or on
    that of its server.
    """
    sealed = store.sealed_measurement(run_id)
    for name in sealed.files:
        path = store.recorded_file(run_id, name, sealed)
        if name in BUNDLED_FILES:
            shutil.copyfile(path, folder / name)
    measurement = sealed.measurement.updated({**labels, "folder": "", "server": ""})
    record = MeasurementRecord(measurement=measurement, began=sealed.began, ended=sealed.ended)
    record.write(folder)
    return record


def _check_measurements(folder: Path, fingerprints: Sequence[str], path: Path) -> None:
    """Raise BadInput if measurements of a bundle have faults. The message lists at most ten faults."""
    faults = []
    for fingerprint in fingerprints:
        for fault in faults_of_measurement(folder / fingerprint, fingerprint):
            faults.append(f"measurement {fingerprint[:12]}: {fault}")
    if faults:
        raise BadInput("\n  ".join([f"{path} is not imported:", *faults[:10]]))


def _complete_measurement(folder: Path, bundle: Path) -> None:
    """Add the histogram and the name of the bundle to a checked measurement in a folder."""
    record = read_measurement(folder)
    values = {"imported": record.measurement.imported or "bundle", "imported_from": bundle.name, "forced": False}
    if RANKS_FILE in record.files:
        compute_histogram(folder / RANKS_FILE).write(folder / HISTOGRAM_FILE)
    measurement = record.measurement.updated(values)
    MeasurementRecord(measurement=measurement, began=record.began, ended=record.ended).write(folder)
