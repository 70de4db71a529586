"""Compare the speed of the engine for vLLM servers with a bare loop of requests, and print its memory.

    python -m benchmarks.served http://host:8000 MODEL_FOLDER --tokens 240000 --requests 16

The server must serve the model of the folder. Both send the same prompts of 8 to 40 tokens, and the same number at
once. The bare loop parses the answers and does nothing else. They take turns, because the speed of a machine changes
with its load.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.shapes import random_corpus
from rbptrack.config.schema import EngineConfig, ModelConfig
from rbptrack.engine import Served, measure
from rbptrack.models.architecture import load_config, vocab_size
from rbptrack.sources.pin import pin_model
from rbptrack.sources.server import find_served_model
from rbptrack.sources.server_connection import Connection


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
    parser.add_argument("--tokens", type=int, default=240_000)
    parser.add_argument("--requests", type=int, default=0, help="requests at once; 0 lets the engine choose")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    model = ModelConfig(path=options.folder, server=options.address)
    vocabulary = vocab_size(load_config(pin_model(model)))
    config = EngineConfig(requests=options.requests)
    served = find_served_model(model, config, vocabulary)
    longest = min(40, served.max_length)
    corpus = random_corpus(options.tokens, vocab_size=vocabulary // 2, seq_len=longest, shortest=8)
    prompts = [corpus.inputs(sequence).tolist() for sequence in range(len(corpus.start))]
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
