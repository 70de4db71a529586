"""`python -m rbptrack report`: every analyzer over the tracking store, as one page; no model, no torch."""

from __future__ import annotations

import shutil
import tempfile
import webbrowser
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import quote

from rbptrack.analysis.contract import Analyzer
from rbptrack.analysis.runs import Runs
from rbptrack.base.errors import BadInput, RbptrackError, said_of_the_disk
from rbptrack.base.files import check_replaceable, folder_beside, make_folder, put
from rbptrack.base.user_paths import check_writable_folder, user_path
from rbptrack.base.words import counted, short_path
from rbptrack.commands.declared.start import REPORT
from rbptrack.commands.runner import HydraCommand, complain_of_broken, find_analyzers
from rbptrack.config.paths import plugin_folders
from rbptrack.config.request import Request
from rbptrack.config.schema import ReportConfig
from rbptrack.console.output import complain, say
from rbptrack.reporting.page import render
from rbptrack.reporting.pdf import browser, print_page
from rbptrack.reporting.runner import Findings, analyze_all, choose, say_reused
from rbptrack.tracking.reader import Reader
from rbptrack.tracking.schema import report_tags
from rbptrack.tracking.store import Store


def _read(arguments: Sequence[str]) -> Request:
    return Request.read("report", REPORT.without_flags(arguments), groups=(), lists=REPORT.lists)


def _report(request: Request) -> int:
    config: ReportConfig = request.composer.compose_typed(request.overrides)
    plugins = find_analyzers(plugin_folders(request.overrides))
    analyzers = choose(plugins, config.analyzers)
    complain_of_broken(plugins)
    out = user_path(config.out) if config.out else None
    if out and out.suffix.lower() not in (".html", ".pdf"):
        raise BadInput(f"out={config.out}: a report is written as .html or .pdf")
    if out and out.suffix.lower() == ".pdf":
        browser()
    if out and out.is_dir():
        raise BadInput(f"out={config.out} is a folder: give a file, such as out=report.html")
    if out:
        check_writable_folder(out.absolute().parent)
        check_replaceable(out.resolve())
    store = Store(config.tracking)
    if store.read_only and out is None:
        out = _free_name(Path("rbptrack-report.html"))
        say(f"the tracking store {store.shown} cannot be written: the report goes into {out}")
    reader = store.reader
    runs = reader.runs(config.filter)
    say(f"{counted(len(runs), 'measurement')}, {counted(len(analyzers), 'analyzer')}")
    command = " ".join(["python -m rbptrack report", *request.overrides])
    findings, run_id = _write(reader, runs, analyzers, config, out, command=command)
    say_reused(len(findings.reused), remedy="again=yes")
    say(f"report   {out or short_path(reader.report_page(run_id))}")
    if config.open and not webbrowser.open(out.absolute().as_uri() if out else reader.report_page(run_id)):
        complain("no browser could be started here; open the file above")
    return 1 if findings.failed else 0


def _free_name(wanted: Path) -> Path:
    """Return the name, or the next one with a number that no file has."""
    names = (wanted.with_stem(f"{wanted.stem}-{i}") for i in count(2))
    return wanted if not wanted.exists() else next(name for name in names if not name.exists())


def _write(
    reader: Reader, runs: Runs, analyzers: Sequence[Analyzer], config: ReportConfig, out: Path | None, *, command: str
) -> tuple[Findings, str]:
    """Analyse and log the page: into the sweep's own run where it is about one, else into a run of its own."""
    sweep = config.filter.sweep[0] if len(config.filter.sweep) == 1 else ""
    scope = f"Sweep {sweep}" if sweep else counted(len(runs), "measurement")
    of_sweep = reader.sweep_run(sweep) if sweep else None
    formats = [form.value for form in config.figures]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        findings = analyze_all(reader, runs, analyzers, folder=folder, sweep=sweep, formats=formats, again=config.again)
        if not findings.sections:
            raise RbptrackError("no analyzer had anything to say about these measurements; the lines above say why")
        facts = [("command", command), ("store", reader.connection.shown)]
        run_page = reader.connection.run_page
        page = partial(render, scope, runs, findings.sections, facts=facts, silent=findings.silent, run_page=run_page)
        if out:
            with said_of_the_disk(out.absolute().parent):
                _save(out.resolve(), folder, page)
        if reader.connection.read_only:
            return findings, ""
        from rbptrack.tracking.live import working  # MLflow: not before other processes have begun
        from rbptrack.tracking.writer import Writer

        writer = Writer(reader.connection)
        (folder / "report.html").write_text(page(), encoding="utf-8")
        if of_sweep:
            writer.log_folder(of_sweep, folder)
            return findings, of_sweep
        with working(writer, f"report / {scope}", report_tags(sweep)) as run_id:
            writer.log_folder(run_id, folder)
    return findings, run_id


def _save(out: Path, folder: Path, page: Callable[..., str]) -> None:
    """Save the page as the user's file, and the tables that it links in a folder beside it."""
    beside = f"{out.stem}-tables"
    with folder_beside(out) as unfinished:  # else half of them, if it fails
        kept = ("tables/*.csv", "tables/notes.txt", "figures/*.svg", "columns.csv")
        for file in [file for pattern in kept for file in folder.glob(f"*/{pattern}")]:
            place = Path(unfinished, beside, file.relative_to(folder).parts[0], file.name)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)
        if out.suffix.lower() == ".pdf":
            whole = Path(unfinished, "page.html")
            whole.write_text(page(files=f"{(out.parent / beside).as_uri()}/{{analyzer}}"), encoding="utf-8")
            print_page(whole, Path(unfinished, out.name))
            whole.unlink()
        else:
            Path(unfinished, out.name).write_text(page(files=quote(beside) + "/{analyzer}"), encoding="utf-8")
        for file in [path for path in Path(unfinished).rglob("*") if path.is_file()]:
            place = out.parent / file.relative_to(unfinished)
            make_folder(place.parent)
            put(file, place, durable=True)


main = HydraCommand(_read, _report)
