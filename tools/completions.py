"""A task that the embedded models can do, scored, and answers to forecast the scores from: what `proxies` is shown with.

    python -m tools.completions examples/proxies      # functions.jsonl and completions.csv: 12 minutes of a shared core

Both come from the held-out files of the embedded corpus `stdlib` (Python 3.11.7's standard library, PSF licence), which are
split by a hash of their name: no file has a part in both.

The task, half of the files: complete an identifier of at least two tokens from its first token and the up to 255 tokens
before it. A completion counts where greedy decoding gives exactly the other tokens and then ends the identifier. Two tasks:
`identifiers_seen`, those that stand in these tokens already, and `identifiers_new`. One item for each identifier of a file, at
most 12 of a kind from a file.

The answers, the other half: functions with a docstring, as prompt (up to the docstring) and solution (the rest).
"""

from __future__ import annotations

import ast
import hashlib
import json
import keyword
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from rbptrack.config.paths import EMBEDDED

CONTEXT, LEAST_CONTEXT, MOST_OF_FILE, AT_ONCE = 256, 64, 12, 32
IDENTIFIER = re.compile(r"[A-Za-z_]\w{4,}")
INSIDE = re.compile(r"\w")


@dataclass(frozen=True)
class Item:
    """An identifier to complete: the tokens up to its end, and how many of them are to be found."""

    task: str
    tokens: list[int]
    rest: int


def in_task(name: str) -> bool:
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


def items_of(text: str, tokenizer: PreTrainedTokenizerBase) -> Iterator[Item]:
    encoded = tokenizer(text, return_offsets_mapping=True, verbose=False)
    tokens, offsets = encoded["input_ids"], encoded["offset_mapping"]
    begins = {
        begin + (len(text[begin:end]) - len(text[begin:end].lstrip())): i for i, (begin, end) in enumerate(offsets)
    }
    ends = {end: i for i, (_, end) in enumerate(offsets)}
    met, count = set[str](), {"identifiers_seen": 0, "identifiers_new": 0}
    for match in IDENTIFIER.finditer(text):
        first, last, name = begins.get(match.start()), ends.get(match.end()), match[0]
        if (
            name in met
            or keyword.iskeyword(name)
            or first is None
            or last is None
            or last <= first
            or first < LEAST_CONTEXT
        ):
            continue
        start = max(0, last + 1 - CONTEXT)
        before = text[offsets[start][0] : match.start()]
        task = "identifiers_seen" if re.search(rf"\b{name}\b", before) else "identifiers_new"
        if count[task] < MOST_OF_FILE:
            met.add(name)
            count[task] += 1
            yield Item(task, tokens[start : last + 1], last - first)


def functions_of(text: str) -> Iterator[tuple[str, str]]:
    """Prompt and solution of every function with a docstring."""
    try:
        tree, lines = ast.parse(text), text.splitlines()
    except (SyntaxError, ValueError):
        return  # cut at 24,000 characters
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) and len(node.body) > 1:
            end = node.body[0].end_lineno or 0
            whole = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.end_lineno])).split("\n")
            prompt, solution = whole[: end - node.lineno + 1], whole[end - node.lineno + 1 :]
            if 2 <= len(solution) <= 40:
                yield "\n".join(prompt) + "\n", "\n".join(solution) + "\n"


@torch.no_grad()
def completed(model: torch.nn.Module, items: list[Item], goes_on: torch.Tensor) -> np.ndarray:
    """Return whether each item is completed. Greedy decoding finds the rest where each of its tokens is first, given those before."""
    right = []
    for begin in range(0, len(items), AT_ONCE):
        batch = items[begin : begin + AT_ONCE]
        size = max(len(item.tokens) for item in batch)
        ids = torch.tensor(
            [item.tokens + [0] * (size - len(item.tokens)) for item in batch]
        )  # causal: padding is not seen
        first = model(input_ids=ids).logits.argmax(dim=-1)
        for row, item in enumerate(batch):
            n = len(item.tokens)
            same = torch.equal(first[row, n - 1 - item.rest : n - 1], ids[row, n - item.rest : n])
            right.append(same and not bool(goes_on[first[row, n - 1]]))
    return np.array(right)


def models() -> Iterator[tuple[str, str, Path]]:
    """Name and revision as rbptrack's store has them, and the folder."""
    root = EMBEDDED
    for path in sorted((root / "models").iterdir()):
        yield f"nano-{path.name}", "main", path
    for path in sorted((root / "seeds").iterdir()):
        yield f"nano-{path.name}", "main", path
    for path in sorted((root / "checkpoints").iterdir()):
        size, _, step = path.name.partition("-")
        yield f"nano-checkpoints-{size}", step, path


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    root = EMBEDDED
    texts = pd.read_parquet(root / "datasets/stdlib/test.parquet")
    tokenizer = AutoTokenizer.from_pretrained(root / "models/6k")
    chosen = texts["id"].map(in_task)
    items = [item for text in texts["text"][chosen] for item in items_of(text, tokenizer)]
    answers = [
        {"id": f"{name}:{i}", "prompt": prompt, "solution": solution}
        for name, text in texts[~chosen][["id", "text"]].itertuples(index=False)
        for i, (prompt, solution) in enumerate(functions_of(text))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "functions.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    pieces = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    goes_on = torch.tensor([bool(INSIDE.match(piece)) for piece in pieces])
    task, rows = np.array([item.task for item in items]), []
    print(f"{len(answers)} functions, {len(items)} identifiers")
    for name, revision, path in models():
        model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        right = completed(model, items, goes_on)
        for each in dict.fromkeys(task):
            mine = right[task == each]
            rows.append(
                {"model": name, "revision": revision, "task": each, "score": round(mine.mean(), 4), "n": len(mine)}
            )
        print(name, revision, *(row["score"] for row in rows[-2:]), flush=True)
    pd.DataFrame(rows).to_csv(folder / "completions.csv", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
