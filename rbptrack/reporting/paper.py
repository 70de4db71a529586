"""What goes into a paper: tables in LaTeX, and a paragraph about the methods."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

import rbptrack
from rbptrack.analysis import Runs
from rbptrack.base import markup
from rbptrack.base.escape import file_part
from rbptrack.base.files import write_whole
from rbptrack.base.formatting import compact, counted, listed, short_hash
from rbptrack.reporting.analyses import Analysis
from rbptrack.reporting.tables import ResultsTable, cell_text, is_column_of_numbers

_MAX_ROWS = 60  # of a table in LaTeX. Larger tables do not fit on a page
_SHRINK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}"
_INTERVALS = "Brackets hold 95% intervals."
_P = "p is adjusted over all rows of a question."


def latex_table(frame: pd.DataFrame, caption: str) -> str:
    r"""Write a table as LaTeX with a caption. It needs the packages booktabs and graphicx.

    Columns of numbers are aligned on the right. All texts are escaped. A table that is wider than the text is shrunk.
    """
    texts = frame.map(cell_text)
    columns = "".join("r" if is_column_of_numbers(texts[name]) else "l" for name in texts)
    escaped = texts.map(_latex_text).rename(columns=lambda name: _latex_text(str(name)))
    table: str = escaped.to_latex(
        index=False, escape=False, column_format=columns, caption=_latex_text(caption), position="tb"
    )
    table = table.replace("\\begin{tabular}", f"\\centering\n{_SHRINK}{{%\n\\begin{{tabular}}")
    return table.replace("\\end{tabular}", "\\end{tabular}}")


def _latex_text(text: str) -> str:
    """Escape a text for LaTeX, and write the k of RBP_k as an index."""
    return re.sub(r"RBP\\_(\w+)", r"RBP$_{\1}$", markup.latex_text(text))


def save_latex(runs: Runs, analyses: Sequence[Analysis], folder: Path) -> tuple[list[Path], list[str]]:
    """Write all tables of analyses as LaTeX into a folder, as files `<analyzer>.tex` and `<analyzer>-<table>.tex`.

    Returns:
        The paths of the files, and a note for each table that is too long for a page.

    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    notes = []
    for analysis in analyses:
        report = analysis.report
        if report is None:
            continue
        measured = describe_measured(runs.frame)
        shown = [table.without_asides() for table in analysis.results_tables]
        tables = [latex_table(table.frame, _caption(table, measured)) for table in shown]
        contents = {analysis.name: "\n".join(tables)} if tables else {}
        for name, table in report.tables.items():
            if len(table) > _MAX_ROWS:
                notes.append(f"{analysis.name}: the table {name} has {len(table):,} rows; its CSV is in the store")
            else:
                terms = [report.term(str(column)) for column in table]
                meanings = [f"{term.title}: {term.meaning}" for term in terms if term.meaning]
                titled = table.set_axis([term.title for term in terms], axis="columns")
                contents[f"{analysis.name}-{name}"] = latex_table(titled, f"{'; '.join(meanings)}. {measured}")
        for name, content in contents.items():
            paths.append(folder / f"{file_part(name)}.tex")
            write_whole(paths[-1], content)
    return paths, notes


def _caption(table: ResultsTable, measured: str) -> str:
    """Return the caption of a table of results: the meanings with units, what was measured, and the method."""
    meanings = []
    for title in table.titles:
        term = table.report.term(table.names[title])
        if term.meaning and table.names[title] not in ("family", "dataset", "metric", "verdict"):
            meanings.append(f"{title}: {term.meaning}")
    method = [_INTERVALS] if table.frame.map(lambda text: " (" in str(text)).any(axis=None) else []
    method += [_P] if "verdict" in table.names.values() else []
    return " ".join([f"{'; '.join(meanings)}.", measured, *method])


def describe_measured(frame: pd.DataFrame) -> str:
    """Say in one sentence how many models, datasets, documents and tokens were measured."""
    models = counted(frame["model"].nunique(), "model")
    datasets = []
    for name, rows in frame.groupby("dataset"):
        documents = rows["documents"].max()
        tokens = rows["num_tokens"].max()
        sizes = [counted(int(documents), "document")] if pd.notna(documents) else []
        sizes += [f"{compact(float(tokens))} scored tokens"] if pd.notna(tokens) else []
        datasets.append(f"{name} ({', '.join(sizes)})" if sizes else str(name))
    return f"Measured: {models} on {listed(datasets)}."


def describe_methods(runs: Runs) -> str:
    """Return a paragraph for the section on methods of a paper.

    It says which models and texts were measured, how ranks were computed, how intervals and p-values were made, and
    with which versions.
    """
    frame = runs.frame
    sentences = [_describe_models(frame), _describe_texts(frame)]
    with_ranks = frame[~frame["without_ranks"].fillna(False)]
    if len(with_ranks):
        sentences += _describe_ranks(with_ranks)
    if len(with_ranks) < len(frame):
        sentences.append(f"{counted(len(frame) - len(with_ranks), 'result')} were imported without ranks.")
    sentences += [
        "RBP_k is the share of scored tokens whose rank is at most k, and CE the mean of -ln p in nats per token.",
        "The law y = A S^-α was fitted by ordinary least squares of ln y on ln S, for y = CE and y = -ln RBP_k, where "
        "S is the number of parameters without embeddings and output head.",
        "95% intervals of exponents include the covariance between documents, by the jackknife, and the scatter of the "
        "models around the law. Other 95% intervals are those of the jackknife over documents, or over groups of "
        "documents where they are known.",
        "The p-values of one question are adjusted by the maximum of correlated normal scores, step-down.",
    ]
    versions = [*sorted(frame["software"].dropna().unique()), f"rbptrack {rbptrack.__version__} (analysis)"]
    return " ".join([*sentences, f"Software: {'; '.join(versions)}."])


def _describe_ranks(frame: pd.DataFrame) -> list[str]:
    """Say how the ranks of measurements were defined and computed. If they differ, every definition is named."""
    sentences = []
    definitions = frame["rank"].fillna("paper")
    if definitions.ne("strict").any():
        sentences.append(
            "The rank of a token is the number of vocabulary entries, itself included, whose probability is at least "
            "that of the token (arXiv 2510.20387, equation 3)."
        )
    if definitions.eq("strict").any():
        sentences.append("The strict rank of a token is 1 plus the number of entries with a larger probability.")
    if frame["candidates"].eq("tokenizer").any():
        sentences.append("Results with candidates=tokenizer rank among the entries that the tokenizer has.")
    # rbptrack computes logits in float32. Those of a server have the precision that a probe found, if there was one.
    own = frame["engine"].eq("transformers").map({True: "float32"}).fillna("unknown precision")
    heads = listed(sorted(frame["head_dtype"].fillna(own).replace("unknown", "unknown precision").unique()))
    precisions = listed(sorted(frame["dtype"].dropna().unique())) or "unknown precision"
    engines = listed(sorted(frame["engine"].dropna().unique()))
    by = f" by {engines}" if engines else ""
    return [*sentences, f"Ranks were computed{by} from logits in {heads}, with the forward pass in {precisions}."]


def _describe_models(frame: pd.DataFrame) -> str:
    models = []
    for family, rows in frame.sort_values("non_embedding_params", kind="stable").groupby("family", sort=False):
        sizes = listed(list(dict.fromkeys(rows["size"].dropna().astype(str))))
        models.append(f"{family} ({sizes})" if sizes else str(family))
    sources = frame[["model", "repo", "commit"]].astype("string").fillna("").drop_duplicates()
    commits = [
        f"{repo or model} at {short_hash(commit)}" for model, repo, commit in sources.itertuples(index=False) if commit
    ]
    text = f"We measured {counted(frame['model'].nunique(), 'model')}: {listed(models)}"
    return f"{text}. Their weights are {listed(commits)}." if commits else f"{text}."


def _describe_texts(frame: pd.DataFrame) -> str:
    texts = []
    columns = ["dataset", "dataset_repo", "dataset_commit", "split", "documents", "num_tokens", "seq_len", "sequence"]
    for values in frame[[*columns, "context"]].astype("object").drop_duplicates().to_dict("records"):
        known = {name: value for name, value in values.items() if pd.notna(value) and value != ""}
        parts = [counted(int(known["documents"]), "document")] if "documents" in known else []
        parts += [f"{int(known['num_tokens']):,} scored tokens"] if "num_tokens" in known else []
        parts += [f"{known['dataset_repo']}"] if "dataset_repo" in known else []
        parts += [f"commit {short_hash(str(known['dataset_commit']))}"] if "dataset_commit" in known else []
        parts += [f"split {known['split']}"] if "split" in known else []
        if "seq_len" in known:
            parts.append(f"sequences of {int(known['seq_len'])} tokens ({known.get('sequence', '')})")
        if known.get("sequence") == "slide" and "context" in known:
            parts.append(f"{int(known['context'])} tokens of context from the previous sequence")
        texts.append(f"{known['dataset']} ({'; '.join(parts)})")
    return f"The texts are {listed(list(dict.fromkeys(texts)))}."
