"""What a misspelled word is answered with: the nearest names first, then what there is; never a traceback."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from rbptrack.__main__ import main

LONG = "a" * 300
TYPOS = {
    # models
    "model=pythia": "'model=pythia/*' takes every size",
    "model=pythia/7m": "Did you mean pythia/70m? Sizes of pythia: 14m, 31m, 70m",
    "model=phytia/70m": "Did you mean pythia/70m?",
    "model=pithia/*": "Did you mean 'pythia/*'?",
    "model=gpt2/smal": "Did you mean gpt2/small?",
    "model=qwen/7b": "Did you mean qwen2.5/7b?",
    "model=Pythia/70M": "Did you mean pythia/70m?",
    "model=nano-6k": "Did you mean nano/6k?",
    "plan model=nano/6q": "Did you mean nano/6k?",
    "bench model=pythia-14": "Did you mean pythia-14m",
    # datasets
    "dataset=wikki": "Did you mean wiki? Options: auslegal, c4",
    "dataset=stdlb,pydocs": "Did you mean stdlib?",
    "dataset=": "dataset=: expected a name",
    # keys
    "modle=nano/6k": "no option modle. Did you mean model=?",
    "modle=nano/*": "Did you mean model=?",
    "+modle=x": "Did you mean model=?",
    "dataset.docments=5": "Did you mean dataset.documents=?",
    "engine.treads=2": "Did you mean engine.threads=?",
    "plan output=csv": "output= was removed; format=csv gives CSV",
    "K=1,5": "Did you mean k=?",
    "analyze analyser=power_law": "Did you mean analyzer=?",
    "analyze analyzer.kss=[1]": "Did you mean analyzer.ks=?",
    "export otu=x.zip": "Did you mean out=?",
    "sync move=true": "Did you mean moved=?",
    "ui prot=1": "Did you mean port=?",
    "list colums=ce": "Did you mean columns=?",
    "bench round=3": "Did you mean rounds=?",
    # words that lack their key or their value
    "nano/6k": "Did you mean model=nano/6k?",
    "pythia/70m dataset=wiki": "Did you mean model=pythia/70m?",
    "wikki": "Did you mean dataset=wiki?",
    "analyze power_law analyzer.ks=1,x": "ks",
    "analyze powerlaw": "Did you mean power_law?",
    "report dataset": "expected dataset=...",
    "--model nano/6k": "unknown option '--model'. Write model=nano/6k",
    "--model=nano/6k": "Write model=nano/6k",
    "model nano/6k": "unknown command 'model'. Write model=nano/6k",
    "list --sort ce": "unknown option '--sort'. Write sort=ce",
    "report --opne": "Did you mean --open?",
    # commands
    "measur": "Did you mean measure? Commands: demo, measure, report, ui",
    "exprot out=x.zip": "Did you mean export?",
    "help reprot": "Did you mean report?",
    "cache claer": "expected nothing, or clear",
    # values
    "model.dtype=float23": "Did you mean float32? Options: float32, bfloat16, float16",
    "rank=strct": "Did you mean strict?",
    "protocol=papre": "Did you mean paper? Options: default, paper",
    "k=defualt": "Did you mean k=default?",
    "engine.batch_tokens=many": "engine.batch_tokens=many: Value 'many'",
    "force=ture": "force=ture: Value 'ture'",
    "ui port=many": "port=many: Value 'many'",
    "list format=cvs": "Did you mean csv?",
    "k=0": "k must be between 1 and the vocabulary's size; got [0]",
    "k=1,4097 'model=nano/*'": "k must be between 1 and 4096, the largest vocabulary",
    "dataset.seq_len=513": "dataset.seq_len must be at most 512, the maximum of nano-115k; got 513",
    "model.path=/nowhere": "model.path=/nowhere: no such folder",
    "dataset.split=dev": "dataset pydocs cannot be read",
    "dataset.fields=[body]": "has no field body. Fields: id, text",
    "tracking.uri=./runs": "MLflow no longer keeps runs in plain files",
    "analyze": "no tracking store",
    "ui": "no tracking store",
    "report again=5": "again=5: expected true or false",
    "model=nano/6k force=7": "force=7: expected true or false",
    "ui browser=5": "browser=5: expected true or false",
    # analyzers
    "analyzers=powerlaw model=nano/6k,nano/15k": "Did you mean power_law? Options: ",
    "analyze analyzer=powerlaw": "Did you mean power_law?",
    "report analyzers=lack_of_fitt": "Did you mean lack_of_fit?",
    # paths
    "import ~nosuchuser/x.zip": "~nosuchuser/x.zip: no user of this machine is called so",
    "export out=~nosuchuser/x.zip": "no user of this machine is called so",
    "report out=~nosuchuser/x.html": "no user of this machine is called so",
    "model=hf model.path=~nosuchuser/m-1k": "no user of this machine is called so",
    f"import {LONG}.zip": "is too long: a name has at most 255 bytes",
    f"export to=hub out={LONG}": "is too long: a name has at most 255 bytes",
    f"--config-dir {LONG}": "is too long: a name has at most 255 bytes",
    "export out=/proc/x.zip": "/proc cannot be written: No such file or directory",
    "report out=/proc/x.html": "/proc cannot be written: No such file or directory",
    "export to=hub out=/etc/passwd/x": "/etc/passwd is a file, not a folder",
    # flags and folders
    "--confg-dir=x": "Did you mean --config-dir?",
    "--multirn model=nano/6k": "Did you mean --multirun?",
    "model=nano/6k --config-name=nope": "--config-name is not taken: rbptrack has configs of its own; --config-dir",
    "model=nano/6k -cp /etc": "-cp is not taken",
    "model=nano/6k --experimental-rerun x": "--experimental-rerun is not taken: run the command again",
    "--config-dir nope": "--config-dir nope: no such folder",
    "hydra.run.dir=/tmp/x": "hydra.run.dir cannot be set",
    "hydra.sweep.dir=/tmp/x": "hydra.sweep.dir cannot be set",
}


@pytest.mark.parametrize("line", TYPOS)
def test_typos(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["rbptrack", *shlex.split(line)])
    assert main() == 2
    said = capsys.readouterr()
    assert TYPOS[line] in said.err
    assert said.out == ""
    assert len(said.err.splitlines()) <= 2
    assert "+modle" not in said.err
    assert not list(tmp_path.iterdir())
