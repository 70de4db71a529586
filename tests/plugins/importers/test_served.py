"""Tests of the importer `served`, which reads log-probabilities of prompts from responses of inference servers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugins.importers.served import Served
from rbptrack.base.errors import BadInput
from rbptrack.exchange.checks import CheckedMeasurement
from rbptrack.ranks import MissingColumn, RankTable
from tests.imported_files import read_checked, write_file

# The scored tokens of two documents: the ID, the log-probability and the rank of each.
TOKENS = [[(5, -0.5, 1), (7, -2.0, 3)], [(5, -1.0, 2), (6, -4.0, 40), (5, -0.25, 1)]]


def vllm(tokens: list[tuple[int, float, int]], **fields: Any) -> dict[str, Any]:
    """Return a response of vLLM. `fields` are further fields of its choice.

    The first entry is null, because the first token of a prompt has no probability.
    """
    entries = []
    for token, logprob, rank in tokens:
        entries.append({str(token): {"logprob": logprob, "rank": rank, "decoded_token": "x"}})
    choice = {"index": 0, "text": " a", "logprobs": None, "prompt_logprobs": [None, *entries]}
    return {"id": "cmpl-1", "object": "text_completion", "model": "org/big-70b", "choices": [choice | fields]}


def sglang(tokens: list[tuple[int, float, int]]) -> dict[str, Any]:
    """Return a response of SGLang. It has no ranks."""
    entries = [[None, 1, None], *([logprob, token, None] for token, logprob, _ in tokens)]
    return {"text": "a", "meta_info": {"id": "1", "prompt_tokens": len(entries), "input_token_logprobs": entries}}


def echo(tokens: list[tuple[int, float, int]], *, completion_tokens: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a response with `echo`: it repeats the prompt and continues it. `fields` replace fields of the response.

    It has neither ranks nor token IDs.
    """
    logprobs = [None, *(logprob for _, logprob, _ in tokens), *[-0.125] * completion_tokens]
    choice = {"index": 0, "text": "abc", "logprobs": {"token_logprobs": logprobs, "tokens": ["x"] * len(logprobs)}}
    usage = {"prompt_tokens": len(tokens) + 1, "completion_tokens": completion_tokens}
    response = {"id": "c", "object": "text_completion", "model": "org/big-70b", "choices": [choice], "usage": usage}
    return response | fields


def write_lines(path: Path, responses: list[Any]) -> Path:
    """Write responses as JSON Lines. Returns the path."""
    return write_file(path, "".join(json.dumps(response) + "\n" for response in responses))


def read_measurement(path: Path, **options: Any) -> CheckedMeasurement:
    """Import a file of responses on the dataset wiki with |V| = 50. `options` replace options of the importer."""
    (measurement,) = read_checked(Served(**{"dataset": "wiki", "vocab_size": 50} | options), path).measurements
    return measurement


def ranks_of(measurement: CheckedMeasurement) -> RankTable:
    """Return the ranks of a measurement, which must have them."""
    assert measurement.ranks is not None
    return measurement.ranks


def test_served_reads_ranks_of_vllm_without_ties(tmp_path: Path) -> None:
    """The second response is in the format of a batch."""
    batch = {"custom_id": "b", "response": {"status_code": 200, "body": vllm(TOKENS[1])}, "error": None}
    measurement = read_measurement(write_lines(tmp_path / "a.jsonl", [vllm(TOKENS[0]), batch]))
    table = ranks_of(measurement)
    assert table.rank.tolist() == [1, 3, 2, 40, 1]
    assert table.column("position").tolist() == [1, 2, 1, 2, 3]
    assert table.column("document").tolist() == [0, 0, 1, 1, 1]
    with pytest.raises(MissingColumn):
        _ = table.strict_rank
    assert measurement.measurement.ce == pytest.approx(7.75 / 5)
    assert measurement.measurement.rbp == {1: 2 / 5, 10: 4 / 5}
    assert (measurement.measurement.family, measurement.measurement.size) == ("big", "70b")
    assert "head_dtype=float32" in measurement.measurement.notes


def responses_with_top_logprobs() -> list[dict[str, Any]]:
    """Return responses of vLLM with two entries for each token: that of the text and that of another token."""
    responses = [vllm(tokens) for tokens in TOKENS]
    for response in responses:
        entries = response["choices"][0]["prompt_logprobs"]
        other = {"9": {"logprob": -0.1, "rank": 1, "decoded_token": "y"}}
        entries[1:] = [other | entry for entry in entries[1:]]
    return responses


def test_served_refuses_several_entries_of_a_token_without_token_ids(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", responses_with_top_logprobs())
    with pytest.raises(BadInput, match=r"line 1.*return_token_ids"):
        read_measurement(path)


def test_served_reads_entry_of_the_texts_token_by_its_id(tmp_path: Path) -> None:
    responses = responses_with_top_logprobs()
    for response, tokens in zip(responses, TOKENS, strict=True):
        response["choices"][0]["prompt_token_ids"] = [1, *(token for token, _, _ in tokens)]
    measurement = read_measurement(write_lines(tmp_path / "a.jsonl", responses))
    assert ranks_of(measurement).rank.tolist() == [1, 3, 2, 40, 1]


def test_served_reads_only_ce_of_sglang(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [sglang(tokens) for tokens in TOKENS])
    measurement = read_measurement(path, model="org/big-70b")
    assert measurement.measurement.ce == pytest.approx(7.75 / 5)
    assert not measurement.measurement.rbp
    assert measurement.ranks is None


@pytest.mark.parametrize("completion_tokens", [0, 1, 5])
def test_served_reads_only_ce_of_prompt_from_echo(completion_tokens: int, tmp_path: Path) -> None:
    """The tokens that the model wrote after the prompt do not belong to the dataset."""
    responses = [echo(tokens, completion_tokens=completion_tokens) for tokens in TOKENS]
    row = read_measurement(write_lines(tmp_path / "a.jsonl", responses)).measurement
    assert row.ce == pytest.approx(7.75 / 5)
    assert (row.num_tokens, row.documents, row.model) == (5, 2, "big-70b")
    assert not row.rbp


def test_served_names_line_of_log_probability_that_stands_for_minus_infinity() -> None:
    with pytest.raises(BadInput, match=r"vllm_clamped\.jsonl, line 2: token 4 .*-9999\.0"):
        read_measurement(Path(__file__).parent / "cases/vllm_clamped.jsonl")


@pytest.mark.parametrize(
    "response",
    [sglang([(5, -9999.0, 1)]), echo([(5, -1e9, 1)]), vllm([(5, -3.4e38, 1)])],
    ids=["sglang", "echo", "vllm"],
)
def test_served_refuses_log_probability_that_stands_for_minus_infinity(response: Any, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1: token 1 .*infinity"):
        read_measurement(write_lines(tmp_path / "a.jsonl", [response]), model="m")


def test_served_ignores_nan_in_number_that_is_not_imported(tmp_path: Path) -> None:
    response = vllm(TOKENS[0]) | {"metrics": {"time": float("nan")}}
    assert read_measurement(write_lines(tmp_path / "a.jsonl", [response])).measurement.num_tokens == 2


def test_served_refuses_nan_as_log_probability(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [vllm([(5, float("nan"), 1)])])
    with pytest.raises(BadInput, match=r"line 1: token 1 .*\bnan"):
        read_measurement(path)


@pytest.mark.parametrize(
    ("name", "repo"), [("org/big-70b", "org/big-70b"), ("./ckpt/big-70b/", ""), ("/m/big-70b", ""), ("big-70b", "")]
)
def test_served_reads_repository_from_hub_id_but_not_from_path(name: str, repo: str, tmp_path: Path) -> None:
    measurement = read_measurement(write_lines(tmp_path / "a.jsonl", [vllm(TOKENS[0]) | {"model": name}]))
    assert measurement.measurement.repo == repo
    assert measurement.measurement.size == "70b"


def test_served_does_not_score_special_tokens_and_tokens_after_them_in_vllm(tmp_path: Path) -> None:
    responses = [vllm(tokens, prompt_token_ids=[1, *(token for token, _, _ in tokens)]) for tokens in TOKENS]
    table = ranks_of(read_measurement(write_lines(tmp_path / "a.jsonl", responses), special=[1]))
    assert table.rank.tolist() == [3, 40, 1]
    assert table.column("position").tolist() == [2, 2, 3]


def test_served_does_not_score_special_tokens_and_tokens_after_them_in_sglang(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "s.jsonl", [sglang(tokens) for tokens in TOKENS])
    row = read_measurement(path, model="m", special=[1, 6]).measurement
    assert row.num_tokens == 1
    assert row.ce == 2.0


def test_served_accepts_rank_whose_probability_was_rounded_to_bfloat16(tmp_path: Path) -> None:
    """Rank 2 needs p <= 1/2. -0.6875 is above ln(1/2) = -0.6931 by less than the rounding error of bfloat16."""
    read_measurement(write_lines(tmp_path / "a.jsonl", [vllm([(5, -0.6875, 2)])]))


def test_served_refuses_rank_that_contradicts_its_probability(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "b.jsonl", [vllm([(5, -0.6, 2)])])
    with pytest.raises(BadInput, match="line 1"):
        read_measurement(path)


@pytest.mark.parametrize(
    ("responses", "options", "fault"),
    [
        ([vllm(TOKENS[0])], {"dataset": ""}, "dataset="),
        ([vllm(TOKENS[0])], {"vocab_size": 0}, "vocab_size=N"),
        ([vllm([(5, -4.0, 40)])], {"vocab_size": 39}, "vocab_size .*40"),
        ([vllm([(5, -4.0, 10**400)])], {}, "line 1: token 1 .*rank"),
        ([vllm([(5, 0.5, 1)])], {}, r"line 1: token 1 .*log-probability 0\.5"),
        ([vllm([(5, -0.5, 0)])], {}, "line 1: token 1 .*rank 0"),
        ([vllm(TOKENS[0]), vllm(TOKENS[1]) | {"model": "other"}], {}, "model.*, other"),
        ([vllm(TOKENS[0]), sglang(TOKENS[1])], {"model": "m"}, "mixes"),
        ([vllm(TOKENS[0]), {"custom_id": "b", "response": None, "error": "too long"}], {}, "line 2: .*too long"),
        ([vllm(TOKENS[0]), [1]], {}, "line 2: .*JSON object"),
        ([vllm(TOKENS[0], prompt_token_ids=[1])], {}, "line 1: .*3 prompt_logprobs.* 1 prompt_token_ids"),
        ([vllm(TOKENS[0])], {"special": [1]}, "line 1: .*return_token_ids=true"),
        ([echo(TOKENS[0])], {"special": [1]}, "line 1: .*ids"),
        ([echo(TOKENS[0], usage=None)], {}, r"line 1: .*usage\.prompt_tokens .*None"),
        ([echo(TOKENS[0], usage={"prompt_tokens": 9})], {}, r"line 1: .*usage\.prompt_tokens .*9"),
        ([echo([(5, None, 1)])], {}, "line 1: token 1 .*log-probability None"),
        ([echo(TOKENS[0]), vllm(TOKENS[1])], {}, "mixes"),
        ([sglang(TOKENS[0])], {}, "model.*none"),
        (
            [{"meta_info": {"prompt_tokens": 9, "input_token_logprobs": [[None, 1, None]]}}],
            {"model": "m"},
            "line 1: .*1 of 9 tokens",
        ),
    ],
)
def test_served_names_line_and_fault_of_bad_response(
    responses: list[Any], options: dict[str, Any], fault: str, tmp_path: Path
) -> None:
    path = write_lines(tmp_path / "a.jsonl", responses)
    with pytest.raises(BadInput, match=rf"a\.jsonl.*{fault}"):
        read_measurement(path, **options)
