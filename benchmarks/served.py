"""Compare the speed of the engine for vLLM servers with a bare loop of requests, and print its memory.

    python -m benchmarks.served http://host:8000 MODEL_FOLDER --documents 10000 --requests 16

The server must serve the model of the folder. Both send the same short prompts, and the same number at once. The bare
loop parses the answers and does nothing else. They take turns, because the speed of a machine changes with its load.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rbptrack.config.schema import EngineConfig, ModelConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import Served, measure
from rbptrack.models.architecture import load_config, vocab_size
from rbptrack.sources.pin import pin_model
from rbptrack.sources.server import Connection, find_served_model


def make_corpus(documents: int, vocabulary: int, longest: int) -> Corpus:
    """Make a corpus of random tokens: documents of 8 to 40 tokens, each one sequence."""
    draw = np.random.default_rng(0)
    lengths = draw.integers(8, min(40, longest) + 1, size=documents)
    total = int(lengths.sum())
    stop = np.cumsum(lengths)
    return Corpus(
        token=draw.integers(vocabulary // 2, size=total, dtype=np.int32),
        document_lengths=lengths,
        field=np.zeros(total, dtype=np.int8),
        num_bytes=np.ones(total, dtype=np.int32),
        scorable=np.ones(total, dtype=bool),
        start=stop - lengths,
        stop=stop,
        first=stop - lengths + 1,
        prefix=np.zeros(0, dtype=np.int32),
        document_ids=tuple(map(str, range(documents))),
        groups=(),
        texts_hash="random",
    )


def bare_loop(address: str, name: str, prompts: Sequence[Sequence[int]], requests: int) -> float:
    """Send all prompts, some at once, and parse the answers. Returns the seconds that this takes."""
    waiting = iter(prompts)
    lock = threading.Lock()

    def send(connection: Connection) -> None:
        while True:
            with lock:
                prompt = next(waiting, None)
            if prompt is None:
                return
            connection.ask(name, prompt)

    with Connection(address, EngineConfig()) as connection:
        threads = [threading.Thread(target=send, args=(connection,)) for _ in range(requests)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("address")
    parser.add_argument("folder")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=0, help="requests at once; 0 lets the engine choose")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = ModelConfig(path=options.folder, server=options.address)
    vocabulary = vocab_size(load_config(pin_model(model)))
    config = EngineConfig(requests=options.requests)
    served = find_served_model(model, config, vocabulary)
    corpus = make_corpus(options.documents, vocabulary, served.max_length)
    prompts = [corpus.inputs(sequence).tolist() for sequence in range(options.documents)]
    tokens = len(corpus.token)
    for _ in range(options.rounds):
        bare = tokens / bare_loop(options.address, served.name, prompts, options.requests or 16)
        with tempfile.TemporaryDirectory() as folder:
            engine = Served(model, served, corpus, vocabulary, config)
            ours = tokens / measure(engine, corpus, ks=(1, 10), folder=Path(folder)).seconds
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{ours:,.0f} tokens per second, bare loop {bare:,.0f}, ratio {ours / bare:.2f}; peak {peak:,.0f} MiB")


if __name__ == "__main__":
    main()
