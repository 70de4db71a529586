"""Prompt log-probabilities of vLLM and SGLang: what they say becomes a measurement, and what they do not say is not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rbptrack.plugins.importers.served import Served

from rbptrack.base.errors import BadInput
from rbptrack.commands.declaration import with_options
from rbptrack.commands.declared.exchange import IMPORT
from rbptrack.exchange.imported import AnyImportedRow, KnownModels
from rbptrack.exchange.intake import take_in
from rbptrack.ranks import LacksColumn, RankTable
from rbptrack.tracking.record import RANKS
from tests.conftest import Program

MODELS = KnownModels({"org/big-70b": ("big", "70b")})
TOKENS = [[(5, -0.5, 1), (7, -2.0, 3)], [(5, -1.0, 2), (6, -4.0, 40), (5, -0.25, 1)]]  # id, ln p, rank; by document


def vllm(tokens: list[tuple[int, float, int]], **more: Any) -> dict[str, Any]:
    """A completion of vLLM: the first entry is null, as the first token of a prompt has no probability."""
    entries = [{str(t): {"logprob": p, "rank": r, "decoded_token": "x"}} for t, p, r in tokens]
    choice = {
        "index": 0,
        "text": " a",
        "logprobs": None,
        "finish_reason": "length",
        "prompt_logprobs": [None, *entries],
    }
    return {"id": "cmpl-1", "object": "text_completion", "model": "org/big-70b", "choices": [choice | more]}


def with_key(key: str) -> dict[str, Any]:
    """A completion whose one scored token has this id."""
    answer = vllm([(5, -0.5, 1)])
    answer["choices"][0]["prompt_logprobs"][1] = {key: {"logprob": -0.5, "rank": 1}}
    return answer


def sglang(tokens: list[tuple[int, float, int]]) -> dict[str, Any]:
    entries = [[None, 1, None], *([p, t, None] for t, p, _ in tokens)]
    return {"text": "a", "meta_info": {"id": "1", "prompt_tokens": len(entries), "input_token_logprobs": entries}}


def write(path: Path, answers: list[Any]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in answers))
    return path


def read(path: Path, **options: Any) -> Any:
    folder = path.parent / "folder"
    folder.mkdir(exist_ok=True)
    importer = Served(**{"dataset": "wiki", "vocab_size": 50} | options)
    [imported] = take_in(importer, path, models=MODELS, rules=AnyImportedRow, folder=folder).measurements
    return imported


def top_two(document: int) -> dict[str, Any]:
    """With prompt_logprobs=1 an entry holds the likeliest token beside the text's."""
    answer = vllm(TOKENS[document])
    for entry in answer["choices"][0]["prompt_logprobs"][1:]:
        entry["9"] = {"logprob": -0.1, "rank": 1, "decoded_token": "y"}
    return answer


def test_vllm_gives_whole_ranks_and_invents_no_ties(tmp_path: Path) -> None:
    batch = {"custom_id": "b", "response": {"status_code": 200, "body": vllm(TOKENS[1])}, "error": None}
    record, folder = read(write(tmp_path / "a.jsonl", [vllm(TOKENS[0]), batch]))
    table = RankTable.read(folder / RANKS)
    assert table.rank.tolist() == [1, 3, 2, 40, 1]
    assert table.column("position").tolist() == [1, 2, 1, 2, 3]
    assert table.column("document").tolist() == [0, 0, 1, 1, 1]
    for name in ("greater", "ties"):
        with pytest.raises(LacksColumn, match="its ranks include an unknown number of ties"):
            table.column(name)
    with pytest.raises(LacksColumn):
        _ = table.strict_rank
    assert record.metrics["ce"] == pytest.approx(7.75 / 5)
    assert record.metrics["rbp_1"] == pytest.approx(2 / 5)
    assert record.metrics["rbp_10"] == pytest.approx(4 / 5)
    assert "tie_rate" not in record.metrics
    assert record.tags["rbptrack.family"] == "big"
    assert "head_dtype=float32" in record.tags["rbptrack.notes"]
    assert record.params["model.repo"] == "org/big-70b"


def test_of_several_entries_the_one_of_the_text_is_taken_where_it_is_named(tmp_path: Path) -> None:
    answers = [top_two(document) for document in (0, 1)]
    with pytest.raises(BadInput, match=r"line 1: token 1 has 2 entries.*return_token_ids=true"):
        read(write(tmp_path / "a.jsonl", answers[:1]))
    for answer, tokens in zip(answers, TOKENS, strict=True):
        answer["choices"][0]["prompt_token_ids"] = [1, *(token for token, _, _ in tokens)]
    _, folder = read(write(tmp_path / "a.jsonl", answers))
    assert RankTable.read(folder / RANKS).rank.tolist() == [1, 3, 2, 40, 1]


def test_sglang_gives_ce_alone(tmp_path: Path) -> None:
    record, folder = read(write(tmp_path / "a.jsonl", [sglang(t) for t in TOKENS]), model="org/big-70b")
    assert record.metrics["ce"] == pytest.approx(7.75 / 5)
    assert not [name for name in record.metrics if name.startswith("rbp")]
    assert not (folder / RANKS).exists()


def test_special_tokens_and_those_after_them_are_not_scored(tmp_path: Path) -> None:
    """As in rbptrack's own measurements; without the option the token after `<s>` is."""
    answers = [vllm(tokens, prompt_token_ids=[1, *(token for token, _, _ in tokens)]) for tokens in TOKENS]
    _, folder = read(write(tmp_path / "a.jsonl", answers), special=[1])
    table = RankTable.read(folder / RANKS)
    assert table.rank.tolist() == [3, 40, 1]
    assert table.column("position").tolist() == [2, 2, 3]
    record, _ = read(write(tmp_path / "s.jsonl", [sglang(tokens) for tokens in TOKENS]), model="m", special=[1, 6])
    assert record.metrics["num_tokens"] == 1
    assert record.metrics["ce"] == 2.0
    options = with_options(IMPORT, Served).parsed(["path=a.jsonl", "special=1,6"])
    assert options.special == [1, 6]  # type: ignore[attr-defined]


def test_ranks_at_the_edge_of_rounding_are_taken(tmp_path: Path) -> None:
    """A float32 may be 1e-3 beside, what was rounded to bfloat16 1.3e-2: -0.69140625 is ln 0.5 so rounded."""
    read(write(tmp_path / "a.jsonl", [vllm([(5, math.log(1.0009 / 3), 3), (5, math.log(0.0199999), 1)])]))
    read(write(tmp_path / "b.jsonl", [vllm([(5, -0.69140625, 2), (5, -1.0, 1)])]))
    with pytest.raises(BadInput, match=r"rank 2 at a probability of 0\.5009"):
        read(write(tmp_path / "c.jsonl", [vllm([(5, -0.69140625, 2), (5, -1.01, 1)])]))


@pytest.mark.parametrize(
    ("answers", "options", "said"),
    [
        (["text"], {}, "line 1: is no JSON object"),
        ([{"choices": []}], {}, "line 1: holds neither prompt_logprobs"),
        ([vllm(TOKENS[0]), sglang(TOKENS[1])], {"model": "m"}, "mixes responses of vLLM and SGLang"),
        ([vllm([(5, -9.5, 51)])], {}, "vocab_size=50, but a rank is 51"),
        ([vllm([(500, -0.5, 1)])], {}, "vocab_size=50, but a token's id is 500"),
        (
            [vllm(TOKENS[0]), vllm([(5, math.log(0.999), 50)])],
            {},
            "line 2: token 1 has rank 50 at a probability of 0.999",
        ),
        (
            [vllm([(5, -2.0, 3), (5, math.log(1.002 / 3), 3)])],
            {},
            "token 2 has rank 3 at a .*: 3 tokens as likely exceed 1",
        ),
        (
            [vllm([(5, -0.5, 1), (5, math.log(0.0199), 1)])],
            {},
            r"token 2 has rank 1 at .*: the first of 50 has 1/\|V\|",
        ),
        ([vllm([(5, False, 1)])], {}, "token 1 has the log-probability False"),
        ([with_key("1_0")], {}, "token 1 has the id '1_0'; a whole number from 0 is needed"),
        ([with_key(" 7 ")], {}, "token 1 has the id ' 7 '"),
        ([with_key("５")], {}, "token 1 has the id '５'"),
        ([vllm(TOKENS[0])], {"special": [1]}, "does not say its first token's id, which special=... needs"),
        ([vllm([(5, -0.5, 1)])], {"vocab_size": 0}, r"which need \|V\|: vocab_size=N"),
        ([vllm([(5, 0.5, 1)])], {}, "token 1 has the log-probability 0.5"),
        ([vllm([(5, float("nan"), 1)])], {}, "token 1 has the log-probability nan"),
        ([vllm([(5, -1.0, 0)])], {}, "token 1 has the rank 0"),
        ([vllm(TOKENS[0], prompt_token_ids=[1, 5])], {}, "has 3 prompt_logprobs and 2 prompt_token_ids"),
        ([sglang(TOKENS[0])], {}, "say which model answered: model=NAME"),
        ([vllm(TOKENS[0])], {"dataset": ""}, "say which texts were sent: dataset=NAME"),
        ([{"meta_info": {"prompt_tokens": 9, "input_token_logprobs": [[None, 1, None]]}}], {}, "has 1 of 9 tokens"),
        ([{"custom_id": "a", "response": None, "error": {"message": "full"}}], {}, "is a request that failed"),
        ([], {}, "holds no scored token"),
    ],
)
def test_what_is_no_response_is_named(answers: list[Any], options: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=said) as error:
        read(write(tmp_path / "a.jsonl", answers), **options)
    assert "\n" not in str(error.value)


def test_the_whole_program_takes_and_hands_on_whole_ranks(program: Program, with_store: Path) -> None:
    """Import, verify every byte, hand on as a bundle, take in again, and join as a table."""
    write(with_store / "a.jsonl", [vllm(tokens) for tokens in TOKENS * 6])
    (with_store / "sizes.csv").write_text("model,non_embedding_params\norg/big-70b,70000000000\n")
    for line in (
        "import a.jsonl dataset=wiki vocab_size=50 sizes=sizes.csv",
        "verify read_data=true",
        "export out=b.zip tokens=true",
        "export out=t.csv ranks=csv",
        "import b.zip",
        "analyze k_law",
    ):
        done = program(*line.split(), cwd=with_store)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    table = pd.read_csv(with_store / "t.csv")
    assert table["rank"].tolist() == [1, 3, 2, 40, 1] * 6
    assert np.isnan(table[["greater", "ties"]].to_numpy()).all()
    done = program("import", "b.zip", "dataset=wiki", cwd=with_store)
    assert done.returncode
    assert "no option dataset" in done.stderr
