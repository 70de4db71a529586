"""Prompt log-probabilities of vLLM and SGLang."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.importers.served import Served
from rbptrack.analysis.importing import CheckedMeasurement
from rbptrack.base.errors import BadInput
from rbptrack.ranks import MissingColumn, RankTable
from tests.imported_files import read_checked, write_file

TOKENS = [[(5, -0.5, 1), (7, -2.0, 3)], [(5, -1.0, 2), (6, -4.0, 40), (5, -0.25, 1)]]  # id, ln p, rank; by document


def vllm(tokens: list[tuple[int, float, int]], **more: Any) -> dict[str, Any]:
    """A completion of vLLM: the first entry is null, as the first token of a prompt has no probability."""
    entries = [{str(t): {"logprob": p, "rank": r, "decoded_token": "x"}} for t, p, r in tokens]
    choice = {"index": 0, "text": " a", "logprobs": None, "prompt_logprobs": [None, *entries]}
    return {"id": "cmpl-1", "object": "text_completion", "model": "org/big-70b", "choices": [choice | more]}


def sglang(tokens: list[tuple[int, float, int]]) -> dict[str, Any]:
    entries = [[None, 1, None], *([p, t, None] for t, p, _ in tokens)]
    return {"text": "a", "meta_info": {"id": "1", "prompt_tokens": len(entries), "input_token_logprobs": entries}}


def echo(tokens: list[tuple[int, float, int]], *, written: int = 1, **more: Any) -> dict[str, Any]:
    """A completion that repeats its prompt, and the tokens that the model wrote after it."""
    logprobs = [None, *(p for _, p, _ in tokens), *[-0.125] * written]
    choice = {"index": 0, "text": "abc", "logprobs": {"token_logprobs": logprobs, "tokens": ["x"] * len(logprobs)}}
    usage = {"prompt_tokens": len(tokens) + 1, "completion_tokens": written}
    return {"id": "c", "object": "text_completion", "model": "org/big-70b", "choices": [choice], "usage": usage} | more


def lines(path: Path, answers: list[Any]) -> Path:
    return write_file(path, "".join(json.dumps(each) + "\n" for each in answers))


def served(path: Path, **options: Any) -> CheckedMeasurement:
    """The measurement of a file of responses."""
    (measurement,) = read_checked(Served(**{"dataset": "wiki", "vocab_size": 50} | options), path).measurements
    return measurement


def table_of(measurement: CheckedMeasurement) -> RankTable:
    """Its ranks, which it must have."""
    assert measurement.imported.ranks is not None
    return measurement.imported.ranks


def test_vllm_gives_whole_ranks_and_invents_no_ties(tmp_path: Path) -> None:
    batch = {"custom_id": "b", "response": {"status_code": 200, "body": vllm(TOKENS[1])}, "error": None}
    measurement = served(lines(tmp_path / "a.jsonl", [vllm(TOKENS[0]), batch]))
    table = table_of(measurement)
    assert table.rank.tolist() == [1, 3, 2, 40, 1]
    assert table.column("position").tolist() == [1, 2, 1, 2, 3]
    assert table.column("document").tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(MissingColumn):
        _ = table.strict_rank
    assert measurement.row.ce == pytest.approx(7.75 / 5)
    assert measurement.row.rbp == {1: 2 / 5, 10: 4 / 5}
    assert (measurement.row.family, measurement.row.size) == ("big", "70b")
    assert "head_dtype=float32" in measurement.imported.notes


def test_of_several_entries_that_of_the_text_is_taken_where_it_is_named(tmp_path: Path) -> None:
    answers = [vllm(tokens) for tokens in TOKENS]
    for answer in answers:
        for entry in answer["choices"][0]["prompt_logprobs"][1:]:
            entry["9"] = {"logprob": -0.1, "rank": 1, "decoded_token": "y"}
    with pytest.raises(BadInput, match=r"line 1.*return_token_ids"):
        served(lines(tmp_path / "a.jsonl", answers))
    for answer, tokens in zip(answers, TOKENS, strict=True):
        answer["choices"][0]["prompt_token_ids"] = [1, *(token for token, _, _ in tokens)]
    measurement = served(lines(tmp_path / "a.jsonl", answers))
    assert table_of(measurement).rank.tolist() == [1, 3, 2, 40, 1]


def test_sglang_gives_ce_alone(tmp_path: Path) -> None:
    measurement = served(lines(tmp_path / "a.jsonl", [sglang(tokens) for tokens in TOKENS]), model="org/big-70b")
    assert measurement.row.ce == pytest.approx(7.75 / 5)
    assert not measurement.row.rbp
    assert measurement.imported.ranks is None


@pytest.mark.parametrize("written", [0, 1, 5])
def test_an_echo_gives_ce_alone_of_the_prompt_alone(written: int, tmp_path: Path) -> None:
    """What the model wrote after the prompt is no text of the dataset."""
    row = served(lines(tmp_path / "a.jsonl", [echo(tokens, written=written) for tokens in TOKENS])).row
    assert row.ce == pytest.approx(7.75 / 5)
    assert (row.num_tokens, row.documents, row.model) == (5, 2, "org/big-70b")
    assert not row.rbp


def test_log_probabilities_that_stand_for_minus_infinity_are_refused_with_their_place(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"vllm_clamped\.jsonl, line 2: token 4 .*-9999\.0.*minus infinity"):
        served(Path(__file__).parent / "cases/vllm_clamped.jsonl")
    for answer in (sglang([(5, -9999.0, 1)]), echo([(5, -1e9, 1)]), vllm([(5, -3.4e38, 1)])):
        with pytest.raises(BadInput, match=r"line 1: token 1 .*minus infinity"):
            served(lines(tmp_path / "a.jsonl", [answer]), model="m")


def test_numbers_that_are_not_read_may_be_nan(tmp_path: Path) -> None:
    assert (
        served(lines(tmp_path / "a.jsonl", [vllm(TOKENS[0]) | {"metrics": {"time": float("nan")}}])).row.num_tokens == 2
    )
    with pytest.raises(BadInput, match="line 1: token 1 has the log-probability nan"):
        served(lines(tmp_path / "a.jsonl", [vllm([(5, float("nan"), 1)])]))


@pytest.mark.parametrize(
    ("name", "repo"), [("org/big-70b", "org/big-70b"), ("./ckpt/big-70b/", ""), ("/m/big-70b", ""), ("big-70b", "")]
)
def test_a_path_is_no_repository(name: str, repo: str, tmp_path: Path) -> None:
    measurement = served(lines(tmp_path / "a.jsonl", [vllm(TOKENS[0]) | {"model": name}]))
    assert (measurement.imported.repo, measurement.row.size) == (repo, "70b")


def test_special_tokens_and_those_after_them_are_not_scored(tmp_path: Path) -> None:
    answers = [vllm(tokens, prompt_token_ids=[1, *(token for token, _, _ in tokens)]) for tokens in TOKENS]
    table = table_of(served(lines(tmp_path / "a.jsonl", answers), special=[1]))
    assert table.rank.tolist() == [3, 40, 1]
    assert table.column("position").tolist() == [2, 2, 3]
    row = served(lines(tmp_path / "s.jsonl", [sglang(tokens) for tokens in TOKENS]), model="m", special=[1, 6]).row
    assert (row.num_tokens, row.ce) == (1, 2.0)


def test_ranks_that_their_probabilities_rule_out_are_refused(tmp_path: Path) -> None:
    """What was rounded to bfloat16 may be 1.3e-2 beside: -0.6875 is ln 0.5 so rounded."""
    served(lines(tmp_path / "a.jsonl", [vllm([(5, -0.6875, 2)])]))
    with pytest.raises(BadInput, match="line 1"):
        served(lines(tmp_path / "b.jsonl", [vllm([(5, -0.6, 2)])]))


@pytest.mark.parametrize(
    ("answers", "options", "reason"),
    [
        ([vllm(TOKENS[0])], {"dataset": ""}, "name the texts that were sent"),
        ([vllm(TOKENS[0])], {"vocab_size": 0}, "need .*vocab_size=N"),
        ([vllm([(5, -4.0, 40)])], {"vocab_size": 39}, "vocab_size of at least 40"),
        ([vllm([(5, -4.0, 10**400)])], {}, "line 1 is not a response .*too large"),
        ([vllm([(5, 0.5, 1)])], {}, "line 1: token 1 has the log-probability 0.5"),
        ([vllm([(5, -0.5, 0)])], {}, "line 1: token 1 has the rank 0"),
        (
            [vllm(TOKENS[0]), vllm(TOKENS[1]) | {"model": "other"}],
            {},
            "name the model that answered.*, other",
        ),
        ([vllm(TOKENS[0]), sglang(TOKENS[1])], {"model": "m"}, "mixes responses"),
        (
            [vllm(TOKENS[0]), {"custom_id": "b", "response": None, "error": "too long"}],
            {},
            "line 2: the request failed: too long",
        ),
        ([vllm(TOKENS[0]), [1]], {}, "line 2: this is not a JSON object"),
        ([vllm(TOKENS[0], prompt_token_ids=[1])], {}, "line 1: there are 3 prompt_logprobs, but 1 prompt_token_ids"),
        ([vllm(TOKENS[0])], {"special": [1]}, "line 1: .*return_token_ids=true"),
        ([echo(TOKENS[0])], {"special": [1]}, "line 1: .*ids"),
        ([echo(TOKENS[0], usage=None)], {}, "line 1: .*usage.prompt_tokens is None"),
        ([echo(TOKENS[0], usage={"prompt_tokens": 9})], {}, "line 1: .*usage.prompt_tokens is 9"),
        ([echo([(5, None, 1)])], {}, "line 1: token 1 has the log-probability None"),
        ([echo(TOKENS[0]), vllm(TOKENS[1])], {}, "mixes responses"),
        ([sglang(TOKENS[0])], {}, "name the model that answered.*none"),
        (
            [{"meta_info": {"prompt_tokens": 9, "input_token_logprobs": [[None, 1, None]]}}],
            {"model": "m"},
            "line 1: only 1 of 9 tokens",
        ),
    ],
)
def test_what_is_no_response_is_refused(
    answers: list[Any], options: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    path = lines(tmp_path / "a.jsonl", answers)
    with pytest.raises(BadInput, match=rf"a\.jsonl.*{reason}"):
        served(path, **options)
