"""Tests that a measurement of every architecture in conf/model has the ranks of the model's own logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from rbptrack.config.schema import DatasetConfig, EngineConfig
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import tokenise
from rbptrack.engine import Transformers, measure
from rbptrack.models.loading import load_model
from rbptrack.models.tokenizer import load_tokenizer
from rbptrack.scoring.scores import Scores
from rbptrack.sources.pin import pin_model
from tests.definition import scores_by_definition
from tests.tiny_models import ARCHITECTURES, HEAD_ROWS, TEXT, model_config, write_checkpoint

DATASET = DatasetConfig(name="toy", path="x", split="test", seq_len=48, context=12)
DOCUMENTS = [Document(str(i), (TEXT[900 * i : 900 * i + 60 * (i + 1)] + " é — ﬁ",)) for i in range(4)]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_measure_has_ranks_of_the_models_logits(name: str, tmp_path: Path) -> None:
    write_checkpoint(name, tmp_path / "model")
    config = model_config(tmp_path / "model")
    source = pin_model(config)
    tokenizer = load_tokenizer(source)
    corpus = build_corpus(tokenise(DOCUMENTS, tokenizer, "\n"), tokenizer, DATASET)
    first_token = ARCHITECTURES[name].first_token
    assert tokenizer.convert_ids_to_tokens(corpus.prefix.tolist()) == ([first_token] if first_token else [])
    model = load_model(config, source)
    result = measure(Transformers(model, corpus, EngineConfig()), corpus, ks=(1, 10), folder=tmp_path / "out")
    expected = scores_of_model(tmp_path / "model", corpus)
    table = result.ranks
    assert table.vocab_size == HEAD_ROWS
    # Matrix products of other shapes round differently. This may swap neighbouring ranks of a few tokens.
    differs = table.rank != (expected["greater"] + expected["ties"] + 1).numpy()
    assert differs.sum() <= max(1, len(differs) // 200)
    np.testing.assert_allclose(table.column("logprob"), expected["logprob"].numpy(), atol=2e-4)
    np.testing.assert_allclose(table.column("entropy"), expected["entropy"].numpy(), atol=2e-3)
    assert result.sums.histogram.rbp(10) > 0  # otherwise the comparison above would be one of constants


def scores_of_model(folder: Path, corpus: Corpus) -> Scores:
    """Compute scores from the logits of transformers' model, one sequence at a time."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    scores = []
    with torch.inference_mode():
        for i in range(len(corpus.start)):
            ids = torch.from_numpy(corpus.inputs(i)).long()
            logits = model(ids[None]).logits[0]  # (length, vocabulary)
            targets = corpus.targets(i, i + 1)
            rows = torch.from_numpy(targets - int(corpus.stop[i]) + len(ids) - 1)
            scores.append(scores_by_definition(logits[rows], torch.from_numpy(corpus.token[targets]).long()))
    return Scores.concatenate(scores)
