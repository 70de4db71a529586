"""Writes and reads bundles. A bundle is a zip file with the records and tables of measurements, without code."""

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
from rbptrack.exchange.archive import BUNDLED_FILES, MANIFEST, check_entries, open_bundle, unpack
from rbptrack.exchange.faults import faults_of_measurement
from rbptrack.exchange.intake import imported_line
from rbptrack.measurement.build import compute_histogram
from rbptrack.measurement.columns import labels_of
from rbptrack.measurement.files import HISTOGRAM_FILE, RANKS_FILE, RECORD_FILE
from rbptrack.measurement.record import MeasurementRecord, parse_measurement, read_measurement
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


def is_bundle(path: Path) -> bool:
    """Return whether a file is a bundle. Raises OSError if the operating system cannot read the file."""
    if not path.is_file():
        return False
    try:
        with open_bundle(path) as bundle:
            return MANIFEST in bundle.namelist()
    except BadInput:
        return False


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
    with open_bundle(path) as bundle:
        fingerprints = check_entries(bundle, path)
        _check_measurements(bundle, fingerprints, path)
    num_new = 0
    with Outbox(store).delivering_together() as folder_of_import, zipfile.ZipFile(path) as bundle:
        for fingerprint in fingerprints:
            if store.find_equivalent(parse_measurement(bundle.read(f"{fingerprint}/{RECORD_FILE}"))):
                continue
            folder = folder_of_import / fingerprint
            folder.mkdir()
            unpack(bundle, fingerprint, folder)
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


def _check_measurements(bundle: zipfile.ZipFile, fingerprints: Sequence[str], path: Path) -> None:
    """Raise BadInput if measurements of a bundle have faults. The message lists at most ten faults."""
    faults = []
    for fingerprint in fingerprints:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            unpack(bundle, fingerprint, folder)
            for fault in faults_of_measurement(folder, fingerprint):
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
