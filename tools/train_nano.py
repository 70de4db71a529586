"""Train the embedded `nano` family, and save its weights and two held-out corpora in the package.

    python -m tools.train_nano corpus --work DIR          # write texts, split by file, the tokenizer and token arrays
    python -m tools.train_nano train --work DIR           # train all sizes, or continue; curves in DIR/<size>.jsonl
    python -m tools.train_nano checkpoints --work DIR     # train at a constant rate and keep weights on the way
    python -m tools.train_nano freeze --work DIR          # save float16 weights and Parquet in rbptrack/embedded/
    python -m tools.train_nano quantise --work DIR        # quantise the saved 115k to int8 and 4 bits with torchao

The tool needs the packages of `make install` and a CPython 3.11 with its test package. On 2 shared cores, the corpus
took 1 minute. Training took 85 minutes of one core's time, 55 of them for the largest size (with OMP_NUM_THREADS=1 and
one process per core).

Recipe: The models are GPT-NeoX models with rotary positions, tied embeddings and a context of 256 tokens. They were
trained with one seed; no model was chosen among seeds or sizes. Muon trains the matrices of the layers, and AdamW
trains everything else. Both have the peak rate 0.02 sqrt(56 / width), with linear warm-up and linear decay to zero.
Weight decay is 0.1 on matrices. Gradients are clipped at 1. A step has 8 x 256 tokens. Autocast uses bfloat16. Training
tokens grow as S^(2/3), from 0.25 million (6k) to 12.5 million (2m). An exponent of 0 would give equal tokens, and 1
tokens in proportion to size.

The exponent 2/3 was chosen after others were tried. With S^0.3 (5 sizes), R^2 on `stdlib` was 0.988 for CE and 0.976,
0.982, 0.989 for k = 1, 10, 100. With S^0.5 (6 sizes), it was 0.988 and 0.978, 0.985, 0.991. Equal tokens (12.5 million)
bent the line, and that training was stopped after four sizes. At 115k (1.5 million tokens), AdamW alone reached a
held-out CE of 4.52, and Muon 3.95. Models of 2 layers learned to copy later than models of 3 layers, and were replaced.
Five million more tokens for 2m moved its held-out CE from 2.417 to 2.400.

Held-out CE (nats, a sample of 256 windows of `stdlib`) at 25, 50, 75 and 100% of training:

       6k   0.25 M tokens                    5.55
      15k   0.48 M tokens              4.91  4.87
      38k   0.88 M tokens        4.74        4.37
     115k   1.84 M tokens  4.62  4.26  3.98  3.73
     311k   3.56 M tokens  4.18  3.50  3.12  3.00
     760k   6.46 M tokens  3.59  3.12  2.90  2.72
       2m  12.50 M tokens  3.10  2.82  2.60  2.42

Exponents alpha of the saved family, with R^2 in brackets:

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, PreTrainedTokenizerFast

EMBEDDED = Path(__file__).parent.parent / "rbptrack/embedded"
CONTEXT = 256
VOCABULARY = 4096
SIZES = {  # layers, width d, heads; S = layers (12 d^2 + 13 d) + 2 d is nearly evenly spaced in ln S
    "6k": (3, 12, 2),
    "15k": (3, 20, 2),
    "38k": (3, 32, 2),
    "115k": (3, 56, 4),
    "311k": (4, 80, 4),
    "760k": (5, 112, 7),
    "2m": (6, 168, 7),
}
CHECKPOINTS = {  # steps after which weights are kept, with D = step * BATCH * CONTEXT training tokens
    "6k": (64, 128, 256, 512, 1024),
    "15k": (64, 128, 256, 512, 1024),
    "38k": (64, 128, 256, 512, 1024),
    "115k": (128, 256, 512, 1024),
}
BATCH = 8  # sequences of CONTEXT tokens in a step
SEED = 1
MAX_TOKENS = 12_500_000  # training tokens of the largest size, about 1.5 epochs
TOKENS_EXPONENT = 2 / 3  # training tokens grow as S^(2/3); see the recipe
HELD_OUT_SHARE = 0.14  # share of the standard library's files that are held out
DOCUMENT_CHARACTERS = 24_000  # a held-out document is the beginning of its file, because long files weigh too much
SHINGLE = 6  # number of consecutive non-blank lines that count as a copied passage
MAX_COPIED = 0.10  # held-out documents of which a larger share occurs in the training text are dropped
GENERATED = ("pydoc_data/", "encodings/cp", "encodings/iso", "encodings/mac", "_sysconfigdata", "config-")
QUANTISED = "115k"
GROUP = 28  # number of 4-bit weights that share a scale: half a row of the narrower matrices

Document = tuple[str, str]  # name, text


def source_files() -> Iterator[Document]:
    """Yield the hand-written Python files of this interpreter's standard library that can be parsed."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if name.startswith(("site-packages/", *GENERATED)):
            continue
        try:
            text = path.read_text(encoding="utf-8")
            ast.parse(text)
        except (UnicodeDecodeError, SyntaxError, ValueError):
            continue
        if len(text) >= 200:
            yield name, text


def docstrings(text: str) -> str:
    """Return the docstrings of a module that have at least 80 characters, separated by blank lines."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    long_docstrings = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds):
            docstring = ast.get_docstring(node)
            if docstring and len(docstring) >= 80:
                long_docstrings.append(docstring)
    return "\n\n".join(long_docstrings)


def shingles(text: str) -> set[int]:
    """Return the hashes of all runs of SHINGLE consecutive lines, without blank lines and outer spaces."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    hashes = set()
    for i in range(max(1, len(lines) - SHINGLE + 1)):
        run = "\n".join(lines[i : i + SHINGLE])
        hashes.add(int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big"))
    return hashes


def is_held_out(name: str) -> bool:
    """Return whether a file is held out, by a hash of its path. The result is the same on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") / 2**32 < HELD_OUT_SHARE


def build_corpus(work: Path) -> None:
    """Write train.jsonl, stdlib.jsonl, pydocs.jsonl, the tokenizer, train.npy and held.npy."""
    train: list[Document] = []
    held_out: list[Document] = []
    for name, text in source_files():
        if is_held_out(name):
            held_out.append((name, text))
        else:
            train.append((name, text))
    training_docstrings = [(f"{name}:docstrings", docstrings(text)) for name, text in train]
    train += [(name, text) for name, text in training_docstrings if len(text) >= 400]
    training_shingles: set[int] = set()
    for _, text in train:
        training_shingles |= shingles(text)

    def drop_copies(documents: Sequence[Document]) -> list[Document]:
        """Return the beginnings of the documents that copy little from the training text."""
        heads = []
        for name, text in documents:
            head = text[:DOCUMENT_CHARACTERS]
            head_shingles = shingles(head)
            if len(head_shingles & training_shingles) / len(head_shingles) <= MAX_COPIED:
                heads.append((name, head))
        return heads

    pydocs = [(f"topic:{name}", text.strip()) for name, text in sorted(topics.items())]
    pydocs += [(f"{name}:docstrings", docstrings(text)) for name, text in held_out]
    texts = {
        "train": train,
        "stdlib": drop_copies(held_out),
        "pydocs": drop_copies([(name, text) for name, text in pydocs if len(text) >= 400]),
    }
    work.mkdir(parents=True, exist_ok=True)
    for label, documents in texts.items():
        with (work / f"{label}.jsonl").open("w") as out:
            out.writelines(json.dumps({"id": name, "text": text}) + "\n" for name, text in documents)
    bpe = train_tokenizer([text for _, text in train])
    bpe.save(str(work / "tokenizer.json"))
    tokens = np.concatenate([np.array([0, *bpe.encode(text).ids], dtype=np.uint16) for _, text in train])
    np.save(work / "train.npy", tokens)
    windows = []  # windows of held-out text; the training curve uses a fixed sample of them
    for _, text in texts["stdlib"]:
        ids = [0, *bpe.encode(text).ids]
        windows += [ids[i : i + CONTEXT + 1] for i in range(0, len(ids) - CONTEXT, 2 * CONTEXT)]
    np.save(work / "held.npy", np.array(windows[:: max(1, len(windows) // 256)], dtype=np.uint16))
    print(f"train: {len(train)} documents, {len(tokens):,} tokens")
    for label in ("stdlib", "pydocs"):
        count = sum(len(bpe.encode(text).ids) for _, text in texts[label])
        print(f"{label}: {len(texts[label])} documents, {count:,} tokens")


def train_tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Train a byte-level BPE tokenizer of VOCABULARY entries."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return bpe


@dataclass(frozen=True)
class Run:
    """One training run.

    Attributes:
        size: a key of SIZES.
        keep: the steps after which weights are kept. If there are such steps, the run ends at the last of them, and its
            rate stays constant after the warm-up. Each checkpoint is then what a shorter run would have trained.

    """

    size: str
    keep: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The name of the run's files, such as `15k` or `15k-checkpoints`."""
        return f"{self.size}-checkpoints" if self.keep else self.size

    @property
    def steps(self) -> int:
        """The number of steps."""
        return self.keep[-1] if self.keep else training_tokens(self.size) // (BATCH * CONTEXT)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0.

        The rate warms up linearly and then decays linearly to zero. In a run with checkpoints it does not decay.
        """
        peak = 0.02 * math.sqrt(56 / SIZES[self.size][1])
        if self.keep:
            return peak * min(1.0, (step + 1) / 40)
        return peak * min(1.0, (step + 1) / max(10, self.steps // 50)) * (1 - step / self.steps)


def training_tokens(size: str) -> int:
    """Return the number of tokens that a size is trained on, MAX_TOKENS (S / S_largest)^TOKENS_EXPONENT."""
    ratio = parameters(size) / max(parameters(other) for other in SIZES)
    return int(MAX_TOKENS * ratio**TOKENS_EXPONENT)


def parameters(size: str) -> int:
    """Return S, the number of parameters without embeddings, of a size."""
    layers, width, _ = SIZES[size]
    return layers * (12 * width**2 + 13 * width) + 2 * width


def build_model(size: str) -> Any:
    """Make a model of a size with random weights."""
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


def optimizers(model: Any, rate: float) -> list[torch.optim.Optimizer]:
    """Make Muon for the matrices of the layers, and AdamW for embeddings, norms and biases, with the same rate."""
    matrices = []
    others = []
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in name:
            matrices.append(parameter)
        else:
            others.append(parameter)
    return [
        torch.optim.Muon(matrices, lr=rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


class Windows:
    """Batches of training windows.

    An epoch reads every window once. Each epoch has its own random order and its own offset in the text.
    """

    def __init__(self, work: Path) -> None:
        self._tokens = torch.from_numpy(np.load(work / "train.npy").astype(np.int64))
        self._per_epoch = (len(self._tokens) - CONTEXT - 1) // CONTEXT
        self._epoch = -1
        self._offset = 0
        self._order = torch.empty(0)

    def batch(self, step: int) -> torch.Tensor:
        """Return the token ids of a step's windows, (BATCH, CONTEXT + 1)."""
        return torch.stack([self._window(i) for i in range(step * BATCH, (step + 1) * BATCH)])

    def _window(self, number: int) -> torch.Tensor:
        epoch, place = divmod(number, self._per_epoch)
        if epoch != self._epoch:
            generator = torch.Generator().manual_seed(SEED * 1000 + epoch)
            self._epoch = epoch
            self._offset = int(torch.randint(CONTEXT, (1,), generator=generator))
            self._order = torch.randperm(self._per_epoch, generator=generator)
        start = min(self._offset + int(self._order[place]) * CONTEXT, len(self._tokens) - CONTEXT - 1)
        return self._tokens[start : start + CONTEXT + 1]


class Training:
    """A training run, which continues from DIR/<name>.pt if that file exists."""

    def __init__(self, work: Path, run: Run) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
        torch.manual_seed(SEED)
        self.work = work
        self.run = run
        self.model = build_model(run.size)
        self.optimizers = optimizers(self.model, run.rate(0))
        self.held_out = torch.from_numpy(np.load(work / "held.npy").astype(np.int64))
        self.start = 0
        self.file = work / f"{run.name}.pt"
        if self.file.exists():
            state = torch.load(self.file, weights_only=True)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.start = state["step"]

    def loss(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the CE of windows of token ids, (rows, CONTEXT + 1), in nats per token."""
        hidden = self.model.gpt_neox(input_ids=rows[:, :-1]).last_hidden_state
        logits = hidden @ self.model.get_output_embeddings().weight.T
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].reshape(-1))

    def train(self) -> None:
        """Train to the end. Writes the curve to <name>.jsonl, and weights to keep to <name>-step<n>.pt."""
        windows = Windows(self.work)
        compiled = torch.compile(self.loss)
        steps = self.run.steps
        losses: list[float] = []
        saved_at = time.monotonic()
        for step in range(self.start, steps):
            for optimizer in self.optimizers:
                for group in optimizer.param_groups:
                    group["lr"] = self.run.rate(step)
            with torch.autocast("cpu", torch.bfloat16):
                loss = compiled(windows.batch(step))
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            for optimizer in self.optimizers:
                optimizer.step()
                optimizer.zero_grad()
            losses.append(float(loss.detach()))
            steps_done = step + 1
            if steps_done % 200 == 0 or steps_done == steps or steps_done in self.run.keep:
                self._log_losses(steps_done, sum(losses) / len(losses))
                losses.clear()
            if steps_done in self.run.keep:
                torch.save({"model": self.model.state_dict()}, self.work / f"{self.run.name}-step{steps_done}.pt")
            if time.monotonic() - saved_at > 120 or steps_done == steps:
                self._save(steps_done)
                saved_at = time.monotonic()

    def _log_losses(self, step: int, training_loss: float) -> None:
        loss_sum = 0.0
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            for rows in torch.split(self.held_out, 16):
                loss_sum += float(self.loss(rows)) * len(rows)
        held_out_loss = loss_sum / len(self.held_out)
        row = {"step": step, "steps": self.run.steps, "train": training_loss, "held_out": held_out_loss}
        with (self.work / f"{self.run.name}.jsonl").open("a") as out:
            out.write(json.dumps(row) + "\n")

    def _save(self, step: int) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": step,
        }
        partial_file = self.file.with_suffix(".tmp")
        torch.save(state, partial_file)
        partial_file.replace(self.file)


def freeze(work: Path) -> None:
    """Write the package's data: weights in float16, configs, the tokenizer, both corpora and the list of files."""
    for size in SIZES:
        _freeze_weights(size, work / f"{size}.pt", EMBEDDED / "models" / size)
    for size, steps in CHECKPOINTS.items():
        for step in steps:
            weights = work / f"{Run(size, keep=steps).name}-step{step}.pt"
            _freeze_weights(size, weights, EMBEDDED / "checkpoints" / f"{size}-step{step}")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_file(str(work / "tokenizer.json")),
        eos_token="<|endoftext|>",
        bos_token="<|endoftext|>",
        model_max_length=2 * CONTEXT,
    )
    tokenizer.save_pretrained(EMBEDDED / "tokenizer")
    for label in ("stdlib", "pydocs"):
        with (work / f"{label}.jsonl").open() as lines:
            rows = [json.loads(line) for line in lines]
        folder = EMBEDDED / "datasets" / label
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "test.parquet", compression="zstd")
    with (work / "train.jsonl").open() as lines:
        names = [json.loads(line)["id"] for line in lines]
    (EMBEDDED / "train_files.txt").write_text("\n".join(name for name in names if ":" not in name) + "\n")


def _freeze_weights(size: str, weights: Path, folder: Path) -> None:
    if not weights.exists():  # this machine has not trained the model
        return
    model = build_model(size)
    model.load_state_dict(torch.load(weights, weights_only=True)["model"])
    model.to(torch.float16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def quantise() -> None:
    """Quantise the matrices of the layers of one saved model. Embedding, head, norms and biases stay in float16.

    On a CPU, torchao stores each 4-bit number in a byte, because its packed formats need kernels of a GPU. The file
    with 4 bits is therefore as large as the file with int8.
    """
    from torchao.quantization import Int8WeightOnlyConfig, IntxWeightOnlyConfig, PerGroup  # type: ignore[import-untyped]
    from transformers import TorchAoConfig

    quantisations = {
        "int8": Int8WeightOnlyConfig(),
        "4bit": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP)),  # type: ignore[attr-defined]
    }
    for name, quantisation in quantisations.items():
        model = GPTNeoXForCausalLM.from_pretrained(
            EMBEDDED / "models" / QUANTISED, dtype=torch.float16, quantization_config=TorchAoConfig(quantisation)
        )
        folder = EMBEDDED / "quantised" / f"{QUANTISED}-{name}"
        model.save_pretrained(folder)
        (folder / "generation_config.json").unlink(missing_ok=True)


def main() -> None:
    """Run one command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["corpus", "train", "checkpoints", "freeze", "quantise"])
    parser.add_argument("sizes", nargs="*", help=f"sizes to train, all by default: {', '.join(SIZES)}")
    parser.add_argument("--work", type=Path, required=True, help="folder for texts, weights and curves")
    options = parser.parse_args()
    if options.command == "corpus":
        build_corpus(options.work)
    elif options.command == "freeze":
        freeze(options.work)
    elif options.command == "quantise":
        quantise()
    else:
        for size in options.sizes or SIZES:
            if options.command == "train":
                Training(options.work, Run(size)).train()
            elif size in CHECKPOINTS:
                Training(options.work, Run(size, keep=CHECKPOINTS[size])).train()


if __name__ == "__main__":
    main()
