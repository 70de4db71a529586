"""Tests of the engine `Served` against a server in this process that answers like vLLM."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rbptrack.base.errors import BadInput, MeasurementError
from rbptrack.config.schema import EngineConfig, ModelConfig
from rbptrack.corpus.sequences import Corpus
from rbptrack.engine import EngineFailed, Served, Transformers, blocks, measure
from rbptrack.engine.served import _Pace
from rbptrack.ranks import RankTable
from rbptrack.sources import server_connection
from rbptrack.sources.server import find_served_model
from rbptrack.sources.server_connection import Connection
from tests.engine.conftest import VOCABULARY, TinyModel
from tests.fake_vllm import FakeVllm

CONFIG = EngineConfig(batch_tokens=200, requests=3, timeout=10, deadline=10)


@pytest.fixture
def vllm(model: TinyModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeVllm]:
    """A server of the tiny model."""
    monkeypatch.setattr(server_connection, "_FIRST_PAUSE", 0.01)

    def logits(ids: list[int]) -> torch.Tensor:
        return model.head.logits(model.backbone(torch.tensor([ids]))[0])

    with FakeVllm(logits) as server:
        yield server


def engine_for(vllm: FakeVllm, corpus: Corpus, config: EngineConfig = CONFIG, **options: Any) -> Served:
    """Make the engine for a corpus and the server's model."""
    model = ModelConfig(server=vllm.address, **{"repo": "org/model"} | options)
    return Served(model, find_served_model(model, config, VOCABULARY), corpus, VOCABULARY, config)


def measure_served(engine: Served, corpus: Corpus, folder: Path) -> RankTable:
    return measure(engine, corpus, ks=(1, 10), folder=folder).ranks


def expected_ranks(model: TinyModel, corpus: Corpus, folder: Path) -> RankTable:
    engine = Transformers(model, corpus, EngineConfig(batch_tokens=200, threads=1))  # type: ignore[arg-type]
    return measure(engine, corpus, ks=(1, 10), folder=folder).ranks


@pytest.mark.parametrize("requests", [0, 1, 7])
def test_ranks_are_those_of_transformers(
    requests: int, vllm: FakeVllm, model: TinyModel, corpus: Corpus, tmp_path: Path
) -> None:
    ranks = measure_served(engine_for(vllm, corpus, replace(CONFIG, requests=requests)), corpus, tmp_path / "served")
    expected = expected_ranks(model, corpus, tmp_path / "here")
    assert ranks.rank.tolist() == expected.rank.tolist()
    assert ranks.column("logprob") == pytest.approx(expected.column("logprob"), abs=1e-5)
    for name in ("document", "position", "token"):
        assert ranks.column(name).tolist() == expected.column(name).tolist()
    assert set(ranks.table.column_names) == {"document", "position", "field", "token", "greater", "logprob"}


def test_connections_are_kept(vllm: FakeVllm, corpus: Corpus, tmp_path: Path) -> None:
    engine = engine_for(vllm, corpus)
    before = vllm.connections
    measure_served(engine, corpus, tmp_path)
    assert len(vllm.prompts) > 20
    assert vllm.connections - before <= 3 + 4  # three requests at once, and a probe of four


@pytest.mark.parametrize("fault", [429, 503, 500, "drop", "slow", "garbled"])
def test_request_that_failed_is_sent_again(
    fault: Any, vllm: FakeVllm, model: TinyModel, corpus: Corpus, tmp_path: Path
) -> None:
    engine = engine_for(vllm, corpus, replace(CONFIG, timeout=1))
    vllm.faults = [fault, None, None, fault, fault, None, fault]
    ranks = measure_served(engine, corpus, tmp_path / "served")
    assert ranks.rank.tolist() == expected_ranks(model, corpus, tmp_path / "here").rank.tolist()


def test_finished_work_is_kept_if_the_server_is_gone_and_another_one_continues(
    vllm: FakeVllm, model: TinyModel, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "SECTION_TOKENS", 400)
    engine = engine_for(vllm, corpus, replace(CONFIG, deadline=0.1))
    vllm.prompts.clear()
    vllm.faults = [None] * 25 + ["drop"] * 1000
    with pytest.raises(EngineFailed):
        measure_served(engine, corpus, tmp_path / "served")
    num_answered = len(vllm.prompts)
    with FakeVllm(vllm.logits, name="other-name", configuration="vllm-0.32.0-tp2-ffffffff") as other:
        ranks = measure_served(engine_for(other, corpus), corpus, tmp_path / "served")
        num_sequences = int(np.count_nonzero(corpus.lengths > 1))
        assert len(other.prompts) < num_sequences
        assert len(other.prompts) + num_answered >= num_sequences
    assert ranks.rank.tolist() == expected_ranks(model, corpus, tmp_path / "here").rank.tolist()


def restart_with(vllm: FakeVllm, **changes: Any) -> Any:
    """Return a fault: the server answers once, and is then another one."""

    def fault(answer: dict[str, Any]) -> dict[str, Any]:
        for name, value in changes.items():
            setattr(vllm, name, value)
        return answer

    return fault


@pytest.mark.parametrize(
    "changes",
    [
        {"configuration": "vllm-0.32.0-99999999", "head_dtype": torch.bfloat16},
        {"configuration": "vllm-0.33.0-0a1b2c3d", "version": "0.33.0"},
        {"configuration": None, "root": "org/other"},
        {"name": "other"},
    ],
)
def test_server_that_changes_in_the_middle_is_refused(
    changes: dict[str, Any], vllm: FakeVllm, corpus: Corpus, tmp_path: Path
) -> None:
    engine = engine_for(vllm, corpus)
    vllm.faults = [None] * 20 + [restart_with(vllm, **changes)]
    with pytest.raises(MeasurementError):
        measure_served(engine, corpus, tmp_path)


def test_server_that_is_restarted_alike_is_used(
    vllm: FakeVllm, model: TinyModel, corpus: Corpus, tmp_path: Path
) -> None:
    engine = engine_for(vllm, corpus)
    vllm.faults = [None] * 20 + ["drop", restart_with(vllm, configuration="vllm-0.32.0-tp4-11111111")]
    ranks = measure_served(engine, corpus, tmp_path / "served")
    assert ranks.rank.tolist() == expected_ranks(model, corpus, tmp_path / "here").rank.tolist()


def changed_entry(**changes: Any) -> Any:
    """Return a fault: the last token of an answer has other values."""

    def fault(answer: dict[str, Any]) -> dict[str, Any]:
        entry = answer["choices"][0]["prompt_logprobs"][-1]
        for value in entry.values():
            value |= changes
        return answer

    return fault


def other_ids(answer: dict[str, Any]) -> dict[str, Any]:
    choice = answer["choices"][0]
    choice["prompt_token_ids"] = [5, *choice["prompt_token_ids"][1:]]
    choice["prompt_token_ids"][0] = 299 - choice["prompt_token_ids"][0]
    return answer


@pytest.mark.parametrize(
    "fault",
    [
        changed_entry(logprob=-9999.0),
        changed_entry(logprob=float("nan")),
        changed_entry(rank=0),
        changed_entry(rank=VOCABULARY + 1, logprob=-8.0),
        changed_entry(rank=2, logprob=-0.1),
        changed_entry(rank=10**20, logprob=-100.0),
        other_ids,
        lambda answer: answer | {"choices": []},
        lambda answer: answer | {"model": "other"},
        lambda answer: answer | {"choices": [{"prompt_logprobs": [None, 5]}]},
        307,
        413,
    ],
)
def test_impossible_answer_is_refused(fault: Any, vllm: FakeVllm, corpus: Corpus, tmp_path: Path) -> None:
    engine = engine_for(vllm, corpus)
    vllm.faults = [None] * 15 + [fault]
    with pytest.raises(EngineFailed):
        measure_served(engine, corpus, tmp_path)


def test_server_with_another_configuration_for_each_answer_is_refused(
    vllm: FakeVllm, corpus: Corpus, tmp_path: Path
) -> None:
    engine = engine_for(vllm, corpus)

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        return answer_of_vllm(body) | {"system_fingerprint": f"vllm-{len(vllm.prompts)}"}

    answer_of_vllm = vllm.answer
    vllm.answer = answer  # type: ignore[method-assign]
    with pytest.raises(EngineFailed):
        measure_served(engine, corpus, tmp_path)


def test_answer_that_is_too_large_is_refused(vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_connection, "_MAX_ANSWER", 5)
    with Connection(vllm.address, CONFIG) as connection, pytest.raises(BadInput):
        connection.request("/version")


@pytest.mark.parametrize("key", ["secretkey\n1234", "schlüssel1234"])
def test_key_that_cannot_be_sent_is_refused_and_not_shown(
    key: str, vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", key)
    with pytest.raises(BadInput, match="VLLM_API_KEY") as raised:
        Connection(vllm.address, CONFIG)
    assert "1234" not in str(raised.value)


def test_line_break_after_a_key_is_not_sent(vllm: FakeVllm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secretkey1234\n")
    with Connection(vllm.address, CONFIG) as connection:
        assert connection.request("/version")


def test_too_long_sequence_is_refused(vllm: FakeVllm, corpus: Corpus) -> None:
    vllm.max_model_len = int(corpus.lengths.max())
    with pytest.raises(BadInput, match=f"--max-model-len {corpus.lengths.max() + 1}"):
        engine_for(vllm, corpus)


def test_engine_can_be_closed_while_the_server_is_silent(vllm: FakeVllm, corpus: Corpus, tmp_path: Path) -> None:
    engine = engine_for(vllm, corpus)
    vllm.faults = [None] * 12 + ["slow"] * 1000
    vllm.slow_seconds = 60.0
    results = engine.run(batch for _, batch in blocks.Blocks(corpus, tmp_path).batches(200))
    next(results)
    began = time.monotonic()
    results.close()
    assert vllm.slow_seconds > time.monotonic() - began


def test_pace_doubles_requests_while_tokens_per_second_increase(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server answers 100 tokens per second for each request, up to 40 requests at once."""
    now = 0.0
    monkeypatch.setattr("rbptrack.engine.served.time.monotonic", lambda: now)
    pace = _Pace(0)
    for _ in range(2000):
        now += 1 / min(pace.limit, 40)
        pace.count(100, 0)
    assert 32 <= pace.limit <= 64


def test_pace_halves_requests_once_for_all_that_were_sent_before() -> None:
    pace = _Pace(16)
    for rejections in range(1, 17):
        pace.count(10, rejections)
    assert pace.limit == 8
    pace.count(10, 16)
    assert pace.limit == 8
    pace.count(10, 17)
    assert pace.limit == 4
