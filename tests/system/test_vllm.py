"""Tests of models that a real vLLM server runs on this machine's CPU. `make vllm` installs it and runs them.

A server starts in about a minute. Each is started when the first test needs it. vLLM's code for CPUs supports heads of
64 features. The random models have three heads, so that three processes can share them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rbptrack.base.errors import BadInput
from rbptrack.config.compose import compose
from rbptrack.measurement.files import RANKS_FILE, RECORD_FILE
from rbptrack.ranks import RankTable
from rbptrack.sweep import resolve
from rbptrack.sweep.cells import Cell
from rbptrack.sweep.measuring import measure_cell
from rbptrack.tracking import Store
from tests.system.servers import free_port
from tests.system.slurm_cluster import needs_slurm
from tests.tiny_models import write_checkpoint
from tools.vllm_environment import ENVIRONMENT

PATIENCE = 900.0  # seconds after which the start of a server or a command counts as hanging
VLLM = ENVIRONMENT.absolute()
INSTALLED = (VLLM / "installed").exists()
MAX_MODEL_LEN = 257
VOCABULARY = 576  # three processes must be able to share the head, too
ROOT = Path(__file__).parents[2]
SERVER_VARIABLES = {
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}
FLOAT32 = ("--dtype", "float32")

pytestmark = pytest.mark.skipif(not INSTALLED, reason="needs vLLM: make vllm")


@dataclass
class VllmServer:
    """A process of `vllm serve` with one model.

    Attributes:
        folder: the model's folder.
        options: further options of `vllm serve`.
        port: the port of the server.

    """

    folder: Path
    options: tuple[str, ...]
    port: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self, *, wait: bool = True) -> None:
        command = [str(VLLM / "bin" / "vllm"), "serve", str(self.folder), "--port", str(self.port)]
        command += ["--served-model-name", "served", "--max-model-len", str(MAX_MODEL_LEN), "--max-num-seqs", "16"]
        command += ["--enforce-eager", *self.options]
        with self.folder.with_suffix(f".{self.port}.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env=os.environ | SERVER_VARIABLES, stdout=log, stderr=log, start_new_session=True
            )
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with suppress(OSError), urllib.request.urlopen(f"{self.address}/health", timeout=10):
                return
            log = self.folder.with_suffix(f".{self.port}.log")
            assert self._process.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.5)

    def kill(self) -> None:
        """Kill all processes of the server at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)


@contextmanager
def running(folder: Path, *options: str) -> Iterator[VllmServer]:
    server = VllmServer(folder, options)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of models and logs."""
    return tmp_path_factory.mktemp("vllm")


def write_llama(folder: Path, *, layers: int) -> Path:
    """Write a Llama with random weights, a tokenizer that begins each text with a special token, and a template."""
    path = folder / f"llama-{layers}"
    shape = {"hidden_size": 192, "num_attention_heads": 3, "num_key_value_heads": 3, "intermediate_size": 384}
    write_checkpoint("llama3", path, num_hidden_layers=layers, vocab_size=VOCABULARY, **shape)
    (path / "chat_template.jinja").write_text(
        "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant] {% endif %}"
    )
    return path


@pytest.fixture(scope="module")
def llama(folder: Path) -> Path:
    return write_llama(folder, layers=2)


@pytest.fixture(scope="module")
def smollm2(folder: Path) -> Path:
    """The folder of SmolLM2-135M-Instruct as safetensors in float32."""
    gguf = VLLM / "smollm2.gguf"
    source = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    for name in ("quantization_config", "_pre_quantization_dtype"):
        if hasattr(source.config, name):
            delattr(source.config, name)
    model = AutoModelForCausalLM.from_config(source.config)
    model.load_state_dict(source.state_dict())
    model.save_pretrained(folder / "smollm2")
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder / "smollm2")
    return folder / "smollm2"


@pytest.fixture(scope="module")
def server(llama: Path) -> Iterator[VllmServer]:
    """A server of the random Llama in float32."""
    with running(llama, *FLOAT32) as server:
        yield server


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the current one, with texts of 1 to 900 tokens, also in other scripts."""
    monkeypatch.chdir(tmp_path)
    lines = ["x", "é", "数学", "Ω≈ç√∫ — «naïve» 😀", "def f(x):\n    return x + 1\n", "Здравствуй, мир. " * 9]
    lines += ["for i in range(10):\n    print(i, i * i)\n" * n for n in (1, 3, 9, 30)]
    texts = [json.dumps({"text": line, "question": line[:20] + "?", "answer": line}) for line in lines]
    (tmp_path / "texts.jsonl").write_text("\n".join(texts))
    return tmp_path


def cell_of(folder: Path, *words: str, server: VllmServer | None = None) -> Cell:
    """Resolve a cell of the texts in the current folder and the model in a folder, here or on a server."""
    address = [f"model.server={server.address}"] if server else []
    model = ["model=hf", f"model.path={folder}", "model.family=served", f"model.size={folder.name}"]
    texts = ["dataset=files", "dataset.files=[texts.jsonl]", "dataset.name=texts"]
    (config,) = compose([*model, *texts, "k=1,10", *address, *words])
    return resolve(config)


def ranks_of(cell: Cell) -> RankTable:
    outcome = measure_cell(cell, Store(), deliver=False)
    assert (cell.folder / RANKS_FILE).exists(), outcome
    return RankTable.read(cell.folder / RANKS_FILE)


def check_equal(served: RankTable, here: RankTable) -> None:
    """Check that ranks differ at .2% of the tokens at most, and only where logits nearly tie."""
    for name in ("document", "position", "token"):
        assert served.column(name).tolist() == here.column(name).tolist()
    difference = np.abs(served.rank.astype(int) - here.rank)
    assert np.count_nonzero(difference) <= max(1, 0.002 * len(difference))
    assert difference.max() <= 3
    assert np.abs(served.column("logprob") - here.column("logprob")).max() < 1e-3


SHORT = ("dataset.seq_len=128", "dataset.context=1")
RULES = [
    ("dataset.seq_len=64", "dataset.context=16"),
    ("dataset.seq_len=256", "dataset.context=1"),
    ("dataset.seq_len=256", "dataset.sequence=truncate"),
    ("dataset.seq_len=128", "dataset.sequence=pack"),
    ("dataset.seq_len=256", "dataset.fields=[question,answer]", "dataset.chat=true"),
]


@pytest.mark.parametrize("words", RULES)
def test_ranks_equal_those_of_transformers(words: tuple[str, ...], llama: Path, server: VllmServer, work: Path) -> None:
    check_equal(ranks_of(cell_of(llama, *words, server=server)), ranks_of(cell_of(llama, *words)))


def test_ranks_of_smollm2_equal_those_of_transformers(smollm2: Path, work: Path) -> None:
    with running(smollm2, *FLOAT32) as server:
        for words in (RULES[0], RULES[4]):
            check_equal(ranks_of(cell_of(smollm2, *words, server=server)), ranks_of(cell_of(smollm2, *words)))


def test_ranks_of_three_tensor_parallel_processes_equal_those_of_transformers(llama: Path, work: Path) -> None:
    with running(llama, *FLOAT32, "--tensor-parallel-size", "3") as server:
        check_equal(ranks_of(cell_of(llama, *RULES[0], server=server)), ranks_of(cell_of(llama, *RULES[0])))


def test_precision_of_the_head_is_found(llama: Path, server: VllmServer, work: Path) -> None:
    found = {"float32": cell_of(llama, *RULES[0], server=server).served}
    with running(llama, "--dtype", "bfloat16") as bfloat16:
        found["bfloat16"] = cell_of(llama, *RULES[0], server=bfloat16).served
    with running(llama, "--dtype", "bfloat16", "--hf-overrides", '{"head_dtype": "float32"}') as mixed:
        found["mixed"] = cell_of(llama, *RULES[0], server=mixed).served
    names = {name: served.head_dtype for name, served in found.items() if served is not None}
    assert names == {"float32": "float32", "bfloat16": "bfloat16", "mixed": "float32"}


@pytest.mark.parametrize(
    "options",
    [
        ("--no-enable-prefix-caching", "--no-enable-chunked-prefill", "--max-num-batched-tokens", "512"),
        ("--enable-prefix-caching", "--enable-chunked-prefill", "--max-num-batched-tokens", "32"),
        ("--max-logprobs", "0"),
    ],
    ids=["whole", "cached", "no-logprobs"],
)
def test_options_of_the_server_do_not_change_ranks(options: tuple[str, ...], llama: Path, work: Path) -> None:
    with running(llama, *FLOAT32, *options) as server:
        cell = cell_of(llama, *RULES[0], server=server)
        ranks = ranks_of(cell)
    assert cell.served is not None
    assert cell.served.head_dtype == ("unknown" if "--max-logprobs" in options else "float32")
    check_equal(ranks, ranks_of(cell_of(llama, *RULES[0])))


def restart_after_first_block(server: VllmServer, folder: Path) -> None:
    """Kill a server after the first block of a measurement, which is not finished then, and start it again."""
    deadline = time.monotonic() + PATIENCE
    while not list(folder.glob("**/*-*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.01)
    server.kill()
    assert not (folder / RECORD_FILE).exists()
    server.start(wait=False)


def test_measurement_continues_when_the_server_is_killed_and_started_again(
    llama: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rbptrack.engine.collector.BLOCK_SECONDS", 0.1)
    lines = [json.dumps({"text": f"number {n} " * (n % 50)}) for n in range(1500)]
    (work / "texts.jsonl").write_text("\n".join(lines))
    with running(llama, *FLOAT32) as server:
        cell = cell_of(llama, *SHORT, server=server)
        with ThreadPoolExecutor(1) as pool:
            restart = pool.submit(restart_after_first_block, server, cell.folder)
            served = ranks_of(cell)
            restart.result()
    check_equal(served, ranks_of(cell_of(llama, *SHORT)))


def test_server_of_another_model_and_a_wrong_key_are_refused(
    llama: Path, folder: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_llama(folder, layers=1)
    with running(other, *FLOAT32, "--api-key", "key-of-the-test-1") as server:
        monkeypatch.setenv("VLLM_API_KEY", "another-key-1")
        with pytest.raises(BadInput, match="VLLM_API_KEY"):
            cell_of(other, *RULES[0], server=server)
        monkeypatch.setenv("VLLM_API_KEY", "key-of-the-test-1")
        with pytest.raises(BadInput, match="server_name"):
            cell_of(llama, *RULES[0], server=server)
        check_equal(ranks_of(cell_of(other, *RULES[0], server=server)), ranks_of(cell_of(other, *RULES[0])))


def test_two_models_on_two_servers_give_one_law(llama: Path, folder: Path, server: VllmServer, work: Path) -> None:
    """Runs of the engine transformers are not mixed into the law."""
    from rbptrack import laws, runs

    deeper = write_llama(folder, layers=4)
    store = Store()
    with running(deeper, *FLOAT32) as second:
        for path, address in ((llama, server), (deeper, second)):
            measure_cell(cell_of(path, *RULES[0], server=address), store)
            measure_cell(cell_of(path, *RULES[0]), store)
    table = laws(runs(), k=(1, 10))
    assert (table["sizes"] == 2).all()
    assert table["family"].nunique() == 2


@needs_slurm
def test_script_measures_two_models_in_a_job_of_slurm(
    cluster: dict[str, str], llama: Path, folder: Path, work: Path
) -> None:
    """The job leaves both measurements on disk."""
    deeper = write_llama(folder, layers=4)
    bin_folder = Path(sys.executable).parent
    (work / "rbptrack").write_text(f'#!/bin/sh\nexec {sys.executable} -m rbptrack "$@"\n')
    (work / "rbptrack").chmod(0o755)
    variables = SERVER_VARIABLES | {
        "VLLM": str(VLLM / "bin" / "vllm"),
        "VLLM_OPTIONS": f"--dtype float32 --max-model-len {MAX_MODEL_LEN} --max-num-seqs 16 --enforce-eager",
        "RBPTRACK": str(work / "rbptrack"),
        "RBPTRACK_OPTIONS": "dataset.files=[texts.jsonl] dataset.name=texts dataset.seq_len=64 dataset.context=16",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{bin_folder}:{cluster['PATH']}",
    }
    script = ROOT / "examples" / "vllm" / "measure.sh"
    pairs = [f"{path}={path}" for path in (llama, deeper)]
    command = ["sbatch", "--wait", "--time=30", str(script), "files", *pairs]
    job = subprocess.run(command, env=cluster | variables, cwd=work, capture_output=True, text=True, check=False)
    log = "\n".join(path.read_text() for path in work.glob("rbptrack-vllm-*.log"))
    assert job.returncode == 0, job.stderr + log[-5000:]
    assert len(list(work.glob("mlruns/cells/*/record.json"))) == 2
