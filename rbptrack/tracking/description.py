"""Describe a measurement in Markdown, for its page in MLflow."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from rbptrack.base import markup
from rbptrack.base.formatting import counted, number_with_error
from rbptrack.measurement.document import Measurement
from rbptrack.ranks.names import metric_label, rbp_name

_DESCRIBED_K = 10  # k of the RBP_k in the description of a run


def describe_measurement(measurement: Measurement) -> str:
    """Describe a measurement in Markdown, for its page in MLflow: model, dataset, main numbers, and their origin."""
    lines = [f"**{markup.markdown_text(measurement.model)}** on **{markup.markdown_text(measurement.dataset)}**"]
    numbers = [_format_result("ce", measurement.ce, measurement.ce_se, " nats")]
    rbp = measurement.rbp.get(_DESCRIBED_K)
    numbers.append(_format_result(rbp_name(_DESCRIBED_K), rbp, measurement.rbp_se.get(_DESCRIBED_K)))
    lines += [", ".join(_describe_settings(measurement)), ", ".join(filter(None, numbers))]
    for label, prefix, repo, commit in (
        ("Model", "", measurement.repo, measurement.commit),
        ("Dataset", "datasets/", measurement.dataset_repo, measurement.dataset_commit),
    ):
        if repo:
            revision = commit.partition("@")[2] or "main"
            address = f"https://huggingface.co/{prefix}{quote(repo)}/tree/{quote(revision)}"
            lines.append(f"{label}: [{markup.markdown_text(repo)}]({address})")
    if measurement.imported:
        lines.append(
            f"Imported ({measurement.imported} {markup.markdown_text(measurement.imported_from)}). "
            "Values that are missing here were not in the imported file."
        )
    return "  \n".join(filter(None, lines))


def _describe_settings(measurement: Measurement) -> Iterator[str]:
    if measurement.documents:
        distinct = f" ({measurement.groups:,} distinct)" if measurement.groups and not measurement.group else ""
        yield counted(measurement.documents, "document") + distinct
    if measurement.num_tokens:
        yield counted(measurement.num_tokens, "scored token")
    if measurement.seq_len:
        yield f"sequences of {measurement.seq_len} tokens ({measurement.sequence or 'unknown rule'})"
    if measurement.dtype:
        yield f"weights {measurement.dtype}"


def _format_result(name: str, value: float | None, error: float | None, unit: str = "") -> str:
    """Format a result with its standard error: `**RBP_10** 0.5120 ± 0.0040`. It is empty if the result is unknown."""
    return "" if value is None else f"**{metric_label(name)}** {number_with_error(value, error)}{unit}"
