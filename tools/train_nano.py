"""Train the embedded `nano` family and freeze it with its two held-out corpora.

    python tools/train_nano.py corpus --work DIR     # texts, split by file; tokenizer; token arrays
    python tools/train_nano.py train --work DIR      # all sizes; resumes; curves in DIR/<size>.jsonl
    python tools/train_nano.py seeds --work DIR      # the smallest sizes again from other seeds
    python tools/train_nano.py checkpoints --work DIR    # at a constant rate, with the weights kept along the way
    python tools/train_nano.py freeze --work DIR     # float16 safetensors and Parquet into rbptrack/embedded/

Needs the packages of `make install` and a CPython 3.11 with its test package. On 2 cores that other
work shared: 1 minute for the corpus, then 85 minutes of one core's time, 55 of them for the largest size (run with
OMP_NUM_THREADS=1 MALLOC_MMAP_THRESHOLD_=8589934592 MALLOC_TRIM_THRESHOLD_=17179869184, one process per core).

Recipe: GPT-NeoX, rotary positions, tied embeddings, context 256; one seed, no choice among seeds or sizes. Muon for the
layers' matrices and AdamW for everything else, at one peak rate 0.02 sqrt(56 / width), linear warm-up and linear decay
to zero, weight decay 0.1 on matrices, gradients clipped at 1, 8 x 256 tokens a step, bfloat16 autocast. Training tokens
grow as S^(2/3), from 0.25 million (6k) to 12.5 million (2m): between equal tokens (exponent 0) and tokens in
proportion to size (1). The exponent 2/3 was chosen after seeing others: in
S^0.3 (5 sizes) R^2 on `stdlib` was 0.988 for CE and 0.976, 0.982, 0.989 for k = 1, 10, 100; in S^0.5 (6 sizes) 0.988 and
0.978, 0.985, 0.991; equal tokens (12.5 million) bent the line and were stopped after four sizes. AdamW alone reached a
held-out CE of 4.52 at 115k (1.5 million tokens), Muon 3.95. Shapes of 2 layers learned to copy later than those of 3,
and were replaced. Five million more tokens for 2m moved its held-out CE from 2.417 to 2.400.

Held-out CE (nats, a sample of 256 windows of `stdlib`) at 25, 50, 75 and 100% of training:

       6k   0.25 M tokens                    5.55
      15k   0.48 M tokens              4.91  4.87
      38k   0.88 M tokens        4.74        4.37
     115k   1.84 M tokens  4.62  4.26  3.98  3.73
     311k   3.56 M tokens  4.18  3.50  3.12  3.00
     760k   6.46 M tokens  3.59  3.12  2.90  2.72
       2m  12.50 M tokens  3.10  2.82  2.60  2.42

The law that the frozen family follows, alpha (R^2):

    stdlib  CE 0.157 (0.991)  RBP_1 0.203 (0.986)  RBP_10 0.268 (0.991)  RBP_100 0.333 (0.995)
    pydocs  CE 0.112 (0.997)  RBP_1 0.175 (0.993)  RBP_10 0.231 (0.997)  RBP_100 0.283 (0.999)
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import math
import os
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

CONTEXT = 256
VOCABULARY = 4096
SIZES = {  # size label: (layers, width, heads): S = layers (12 d^2 + 13 d) + 2 d, evenly spaced in ln S
    "6k": (3, 12, 2),
    "15k": (3, 20, 2),
    "38k": (3, 32, 2),
    "115k": (3, 56, 4),
    "311k": (4, 80, 4),
    "760k": (5, 112, 7),
    "2m": (6, 168, 7),
}
BATCH = 8  # sequences of CONTEXT tokens in a step
SEED = 1
MORE_SEEDS = {"6k": (2, 3), "15k": (2, 3), "38k": (2, 3), "115k": (2,)}  # other random weights and order of the text
CHECKPOINTS = {  # size: the steps at which weights are kept; D = step * BATCH * CONTEXT tokens
    "6k": (64, 128, 256, 512, 1024),
    "15k": (64, 128, 256, 512, 1024),
    "38k": (64, 128, 256, 512, 1024),
    "115k": (128, 256, 512, 1024),
}
LARGEST_TOKENS = 12_500_000  # of the largest size; about 1.5 epochs
TOKENS_EXPONENT = 2 / 3  # training tokens grow as S^(2/3), so that no size is starved while another is saturated
HELD_OUT_SHARE = 0.14  # of the standard library's files
DOCUMENT_CHARACTERS = 24_000  # a held-out document is the head of its file: no file weighs too much
SHINGLE = 6  # consecutive non-blank lines that count as a copied passage
MAX_COPIED = 0.10  # a held-out document with more of its shingles in the training text is dropped


def source_files() -> Iterator[tuple[str, str]]:
    """Readable, hand-written Python files of the running interpreter's standard library, as (path, text)."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(
            (
                "site-packages/",
                "pydoc_data/",
                "encodings/cp",
                "encodings/iso",
                "encodings/mac",
                "_sysconfigdata",
                "config-",
            )
        ):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            ast.parse(text)
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        if len(text) >= 200:
            yield name, text


def docstrings(text: str) -> str:
    """Return the docstrings of a module's text of at least 80 characters, in order, separated by blank lines."""
    nodes = (
        n
        for n in ast.walk(ast.parse(text))
        if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
    )
    texts = [ast.get_docstring(node) for node in nodes]
    return "\n\n".join(s for s in texts if s and len(s) >= 80)


def shingles(text: str) -> set[int]:
    """Hashes of every run of SHINGLE consecutive non-blank stripped lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    runs = ("\n".join(lines[i : i + SHINGLE]) for i in range(max(1, len(lines) - SHINGLE + 1)))
    return {int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big") for run in runs}


def is_held_out(name: str) -> bool:
    """Split by file: a hash of the path decides, so that the split does not depend on order or machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32 < HELD_OUT_SHARE


def build_corpus(work: Path) -> None:
    """Write train.jsonl, stdlib.jsonl, pydocs.jsonl, the tokenizer and train.npy."""
    train: list[tuple[str, str]] = []
    held: list[tuple[str, str]] = []
    for name, text in source_files():
        (held if is_held_out(name) else train).append((name, text))
    train += [(f"{name}:docstrings", d) for name, t in train if len(d := docstrings(t)) >= 400]
    seen: set[int] = set()
    for _, text in train:
        seen |= shingles(text)

    def fresh(text: str) -> bool:
        own = shingles(text)
        return len(own & seen) / len(own) <= MAX_COPIED

    stdlib = [(n, t[:DOCUMENT_CHARACTERS]) for n, t in held]
    stdlib = [(n, t) for n, t in stdlib if fresh(t)]
    pydocs = [(f"topic:{n}", t.strip()) for n, t in sorted(topics.items())]
    pydocs += [(f"{n}:docstrings", docstrings(t)) for n, t in held]
    pydocs = [(n, t[:DOCUMENT_CHARACTERS]) for n, t in pydocs if len(t) >= 400 and fresh(t)]
    work.mkdir(parents=True, exist_ok=True)
    for label, documents in {"train": train, "stdlib": stdlib, "pydocs": pydocs}.items():
        with (work / f"{label}.jsonl").open("w") as out:
            out.writelines(json.dumps({"id": n, "text": t}) + "\n" for n, t in documents)

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((t for _, t in train), trainer)
    bpe.save(str(work / "tokenizer.json"))
    streams = []
    for _, text in train:
        streams.append(np.array([0, *bpe.encode(text).ids], dtype=np.uint16))
    tokens = np.concatenate(streams)
    np.save(work / "train.npy", tokens)
    held_rows = []  # a fixed sample of held-out windows for the training curve
    for _, text in stdlib:
        ids = [0, *bpe.encode(text).ids]
        held_rows += [ids[i : i + CONTEXT + 1] for i in range(0, len(ids) - CONTEXT, 2 * CONTEXT)]
    np.save(work / "held.npy", np.array(held_rows[:: max(1, len(held_rows) // 256)], dtype=np.uint16))
    counts = {}
    for label, documents in {"stdlib": stdlib, "pydocs": pydocs}.items():
        counts[label] = (len(documents), sum(len(bpe.encode(t).ids) for _, t in documents))
    print(f"train: {len(train)} documents, {len(tokens):,} tokens; held out (documents, tokens): {counts}")


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        size: one of SIZES.
        seed: of the random weights and of the order of the text.
        keep: steps whose weights are kept beside the last. A run with such steps ends at the last of them, and its rate
            stays constant after the warm-up, so that every checkpoint was trained alike whatever follows it.

    """

    size: str
    seed: int = SEED
    keep: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Names its files: 15k, 15k-seed2, 15k-checkpoints."""
        return f"{self.size}{f'-seed{self.seed}' * (self.seed != SEED)}{'-checkpoints' * bool(self.keep)}"

    @property
    def steps(self) -> int:
        """How many steps it takes."""
        return self.keep[-1] if self.keep else training_tokens(self.size) // (BATCH * CONTEXT)

    def rate(self, step: int) -> float:
        """Return the learning rate of a 0-based step: linear warm-up, then linear decay to zero, or none for checkpoints."""
        peak = 0.02 * math.sqrt(56 / SIZES[self.size][1])
        if self.keep:  # whatever its length: a longer run goes through the same checkpoints
            return peak * min(1.0, (step + 1) / 40)
        return peak * min(1.0, (step + 1) / max(10, self.steps // 50)) * (1 - step / self.steps)


def training_tokens(size: str) -> int:
    """Tokens that a size is trained on: LARGEST_TOKENS (S / S_largest)^TOKENS_EXPONENT."""
    ratio = parameters(size) / max(parameters(other) for other in SIZES)
    return int(LARGEST_TOKENS * ratio**TOKENS_EXPONENT)


def parameters(size: str) -> int:
    """S of a size."""
    layers, width, _ = SIZES[size]
    return layers * (12 * width**2 + 13 * width) + 2 * width


def build_model(size: str) -> GPTNeoXForCausalLM:
    """Return a GPT-NeoX causal LM of the named size with random weights (tied embeddings, rotary positions)."""
    layers, width, heads = SIZES[size]
    config = GPTNeoXConfig(
        vocab_size=VOCABULARY,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        max_position_embeddings=2 * CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 1.0},
        tie_word_embeddings=True,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPTNeoXForCausalLM(config)


def optimizers(model: GPTNeoXForCausalLM, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the layers, AdamW for embeddings, norms and biases, at one rate."""
    hidden = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    return [
        torch.optim.Muon(hidden, lr=lr, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class Windows:
    """Batches of training windows: every epoch reads every window once, in its own order and from its own offset."""

    def __init__(self, work: Path, seed: int) -> None:
        self.seed = seed
        self.data = torch.from_numpy(np.load(work / "train.npy").astype(np.int64))
        self.per_epoch = (len(self.data) - CONTEXT - 1) // CONTEXT
        self._epoch, self._offset, self._order = -1, 0, torch.empty(0)

    def batch(self, step: int) -> torch.Tensor:
        """(BATCH, CONTEXT + 1) token ids."""
        return torch.stack([self._window(i) for i in range(step * BATCH, (step + 1) * BATCH)])

    def _window(self, number: int) -> torch.Tensor:
        epoch, place = divmod(number, self.per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(self.seed * 1000 + epoch)
            self._epoch, self._offset = epoch, int(torch.randint(CONTEXT, (1,), generator=generator))
            self._order = torch.randperm(self.per_epoch, generator=generator)
        at = min(self._offset + int(self._order[place]) * CONTEXT, len(self.data) - CONTEXT - 1)
        return self.data[at : at + CONTEXT + 1]


def train(work: Path, run: Run) -> None:
    """Train one run; resumes from <name>.pt; the curve goes to <name>.jsonl, kept steps to <name>-step<n>.pt."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    torch.manual_seed(run.seed)
    model, windows = build_model(run.size), Windows(work, run.seed)
    opts = optimizers(model, run.rate(0))
    held = torch.from_numpy(np.load(work / "held.npy").astype(np.int64))
    steps = run.steps
    checkpoint, start = work / f"{run.name}.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        for opt, saved in zip(opts, state["optimizers"], strict=True):
            opt.load_state_dict(saved)
        start = state["step"]

    def loss_of(rows: torch.Tensor) -> torch.Tensor:
        hidden = model.gpt_neox(input_ids=rows[:, :-1]).last_hidden_state
        logits = hidden @ model.get_output_embeddings().weight.T
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].reshape(-1))

    fast, mean, seen, saved_at = torch.compile(loss_of), 0.0, 0, time.time()
    for step in range(start, steps):
        for group in (g for opt in opts for g in opt.param_groups):
            group["lr"] = run.rate(step)
        with torch.autocast("cpu", torch.bfloat16):
            loss = fast(windows.batch(step))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for opt in opts:
            opt.step()
            opt.zero_grad()
        mean, seen = mean + float(loss.detach()), seen + 1
        last = step + 1 == steps
        if (step + 1) % 200 == 0 or last or step + 1 in run.keep:
            with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
                ce = sum(float(loss_of(rows)) * len(rows) for rows in held.split(16)) / len(held)
            row = {"step": step + 1, "steps": steps, "train": mean / max(seen, 1), "held_out": ce}
            with (work / f"{run.name}.jsonl").open("a") as out:
                out.write(json.dumps(row) + "\n")
            mean, seen = 0.0, 0
        if step + 1 in run.keep:
            torch.save({"model": model.state_dict()}, work / f"{run.name}-step{step + 1}.pt")
        if time.time() - saved_at > 120 or last:
            state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in opts], "step": step + 1}
            torch.save(state, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)
            saved_at = time.time()


def freeze(work: Path, target: Path) -> None:
    """Write float16 safetensors, tokenizer and config per size, both corpora, the training manifest and the notice."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(work / "tokenizer.json")),
        eos_token="<|endoftext|>",
        bos_token="<|endoftext|>",
        model_max_length=2 * CONTEXT,
    )

    def write(size: str, weights: str, folder: Path, *, with_tokenizer: bool) -> None:
        if not (work / f"{weights}.pt").exists():
            return
        model = build_model(size)
        model.load_state_dict(torch.load(work / f"{weights}.pt", weights_only=True)["model"])
        model.to(torch.float16).save_pretrained(folder)
        if with_tokenizer:  # the others name the tokenizer of their size: 280 kB each otherwise
            tokenizer.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)

    for size in SIZES:
        write(size, size, target / "models" / size, with_tokenizer=True)
    for size, seeds in MORE_SEEDS.items():
        for seed in seeds:
            folder = target / "seeds" / f"{size}-seed{seed}"
            write(size, Run(size, seed).name, folder, with_tokenizer=False)
    for size, steps in CHECKPOINTS.items():
        for step in steps:
            weights = f"{Run(size, keep=steps).name}-step{step}"
            write(size, weights, target / "checkpoints" / f"{size}-step{step}", with_tokenizer=False)
    for label in ("stdlib", "pydocs"):
        rows = [json.loads(line) for line in (work / f"{label}.jsonl").open()]
        (target / "datasets" / label).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), target / "datasets" / label / "test.parquet", compression="zstd")
    names = [json.loads(line)["id"] for line in (work / "train.jsonl").open()]
    (target / "train_files.txt").write_text("\n".join(n for n in names if ":" not in n) + "\n")


def main() -> None:
    """Run one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["corpus", "train", "seeds", "checkpoints", "freeze"])
    parser.add_argument("sizes", nargs="*", help=f"to train: {', '.join(SIZES)}; all by default")
    parser.add_argument("--work", type=Path, required=True, help="folder for texts, checkpoints and curves")
    arguments = parser.parse_args()
    if arguments.command == "corpus":
        build_corpus(arguments.work)
    elif arguments.command == "freeze":
        freeze(arguments.work, Path(__file__).parent.parent / "rbptrack" / "embedded")
    else:
        for run in runs(arguments.command, arguments.sizes or list(SIZES)):
            train(arguments.work, run)


def runs(command: str, sizes: list[str]) -> list[Run]:
    """Return what a command trains, the smallest sizes first."""
    if command == "seeds":
        return [Run(size, seed) for size in sizes for seed in MORE_SEEDS.get(size, ())]
    if command == "checkpoints":
        return [Run(size, keep=CHECKPOINTS[size]) for size in sizes if size in CHECKPOINTS]
    return [Run(size) for size in sizes]


if __name__ == "__main__":
    main()
