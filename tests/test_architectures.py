"""Every architecture that conf/model names: S, ranks and log-probabilities, tokenizers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from omegaconf import OmegaConf

from rbptrack.base.errors import BadInput
from rbptrack.config.compose import Composer
from rbptrack.config.paths import conf_folder
from rbptrack.config.patterns import size_key
from rbptrack.config.schema import Candidates, DatasetConfig, EngineConfig, ModelConfig
from rbptrack.corpus.documents import Document
from rbptrack.corpus.sequences import build_corpus
from rbptrack.engine import executor
from rbptrack.engine.measure import measure
from rbptrack.models.architecture import candidates, count_parameters, load_config, load_tokenizer
from rbptrack.models.loading import load_model
from rbptrack.scoring.scorer import reference
from rbptrack.sources.pin import of_model, of_tokenizer
from tests.architectures import ARCHITECTURES, ROWS, TEXT, build

DATASET = DatasetConfig(name="toy", path="x", split="test", seq_len=48, context=12)
DOCUMENTS = [Document(str(i), (TEXT[900 * i : 900 * i + 60 * (i + 1)] + " é — ﬁ",)) for i in range(4)]

# Published: the Pythia paper's Table 1, the models' cards, and the counts in the authors' repository; shapes as in the
# repositories' config.json. (class, shape, S, total)
PUBLISHED: dict[str, tuple[str, dict[str, Any], int, int | None]] = {
    "pythia-14m": ("GPTNeoXConfig", {"hidden_size": 128, "num_hidden_layers": 6, "num_attention_heads": 4, "intermediate_size": 512, "vocab_size": 50304}, 1_189_888, 14_067_712),
    "pythia-160m": ("GPTNeoXConfig", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 50304}, 85_056_000, 162_322_944),
    "pythia-12b": ("GPTNeoXConfig", {"hidden_size": 5120, "num_hidden_layers": 36, "num_attention_heads": 40, "intermediate_size": 20480, "vocab_size": 50688}, 11_327_027_200, 11_846_072_320),
    "gpt2": ("GPT2Config", {}, 85_056_000, 124_439_808),
    "gpt2-xl": ("GPT2Config", {"n_embd": 1600, "n_layer": 48, "n_head": 25}, 1_475_561_600, 1_557_611_200),
    "opt-125m": ("OPTConfig", {}, 85_056_000, 125_239_296),
    "opt-350m": ("OPTConfig", {"hidden_size": 1024, "word_embed_proj_dim": 512, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "do_layer_norm_before": False}, 303_357_952, 331_196_416),
    "qwen2.5-0.5b": ("Qwen2Config", {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True}, 357_898_112, 494_032_768),
    "qwen2.5-72b": ("Qwen2Config", {"hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 152064}, 70_214_787_072, 72_706_203_648),
    "mamba-130m": ("MambaConfig", {"vocab_size": 50280, "num_hidden_layers": 24}, 90_520_320, 129_135_360),
    "gpt-neo-125m": ("GPTNeoConfig", {"hidden_size": 768, "num_layers": 12, "num_heads": 12, "attention_types": [[["global", "local"], 6]]}, 85_028_352, 125_198_592),
    "tinystories-33m": ("GPTNeoConfig", {"hidden_size": 768, "num_layers": 4, "num_heads": 16, "attention_types": [[["global", "local"], 2]]}, 28_343_808, 68_514_048),
    "llama3-1b": ("LlamaConfig", {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True}, 973_146_112, 1_235_814_400),
    "smollm2-135m": ("LlamaConfig", {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True}, 106_203_456, 134_515_008),
    "olmo2-1b": ("Olmo2Config", {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 16, "vocab_size": 100352}, 1_073_874_944, 1_484_916_736),
    "qwen3-0.6b": ("Qwen3Config", {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}, 440_467_456, 596_049_920),
    "gemma2-2b": ("Gemma2Config", {}, 2_024_517_888, 2_614_341_888),
    "llama2-7b": ("LlamaConfig", {}, 6_476_271_616, 6_738_415_616),
    "llama2-70b": ("LlamaConfig", {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8}, 68_452_360_192, 68_976_648_192),
    "phi2-2.7b": ("PhiConfig", {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 51200}, 2_517_488_640, 2_779_683_840),
    "mistral-7b": ("MistralConfig", {}, 6_979_588_096, 7_241_732_096),
    "deepseek-7b": ("LlamaConfig", {"num_hidden_layers": 30, "vocab_size": 102400}, 6_071_504_896, 6_910_365_696),
    "distilgpt2": ("GPT2Config", {"n_layer": 6}, 42_528_768, 81_912_576),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_s_is_the_published_count(name: str) -> None:
    kind, shape, s, total = PUBLISHED[name]
    counts = count_parameters(getattr(transformers, kind)(**shape))
    assert (counts.non_embedding, counts.total) == (s, total)


def folder_of(name: str, place: Path) -> tuple[ModelConfig, Any]:
    build(name, place)
    config = ModelConfig(family="toy", size="1k", path=str(place))
    return config, of_model(config)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_ranks_are_those_of_the_logits(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, source = folder_of(name, tmp_path / "model")
    tokenizer = load_tokenizer(source)
    corpus = build_corpus(DOCUMENTS, tokenizer, DATASET)
    begins = ARCHITECTURES[name].begins
    assert tokenizer.convert_ids_to_tokens(corpus.prefix.tolist()) == ([begins] if begins else [])
    result = measure(load_model(config, source), corpus, ks=(1, 10), engine=EngineConfig(), folder=tmp_path / "out")
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32).eval()
    columns = {"greater": [], "ties": [], "logprob": []}
    with torch.inference_mode():
        for i in range(len(corpus.start)):
            ids = torch.from_numpy(corpus.inputs(i)).long()
            logits = plain(ids[None]).logits[0]  # (length, vocabulary)
            targets = corpus.targets(i, i + 1)
            rows = torch.from_numpy(targets - int(corpus.stop[i]) + len(ids) - 1)
            scores = reference(logits[rows], torch.from_numpy(corpus.token[targets]).long())
            for column, values in columns.items():
                values.append(getattr(scores, column).numpy())
    table = result.ranks
    assert table.vocab_size == ROWS
    expected = {column: np.concatenate(values) for column, values in columns.items()}
    # Other shapes of the same products round otherwise: neighbours may swap, in a few of a thousand.
    moved = table.rank != expected["greater"] + expected["ties"] + 1
    assert moved.sum() <= max(1, len(moved) // 200)
    np.testing.assert_allclose(table.column("logprob"), expected["logprob"], atol=2e-4)
    assert 0 < result.rbp(1) < 1 or result.rbp(10) > 0  # not a constant
    monkeypatch.setattr(executor, "_MANY_ENTRIES", 0)
    once = measure(
        load_model(config, source), corpus, ks=(1, 10), engine=EngineConfig(), folder=tmp_path / "once"
    ).ranks
    for column in ("greater", "ties", "top"):  # numba's one pass over logits ranks to the byte as torch does
        np.testing.assert_array_equal(once.column(column), table.column(column))
    np.testing.assert_allclose(once.column("logprob"), table.column("logprob"), rtol=0, atol=2e-6)


def test_candidates_of_the_tokenizer_only(tmp_path: Path) -> None:
    config, source = folder_of("qwen2.5", tmp_path / "model")
    tokenizer, architecture = load_tokenizer(source), load_config(source)
    entries, holes = candidates(architecture, tokenizer, Candidates.tokenizer)
    assert (entries, holes, candidates(architecture, tokenizer, Candidates.vocabulary)) == (400, (), (ROWS, ()))
    assert candidates(architecture, SimpleNamespace(get_vocab=lambda: {"a": 0, "b": 2}), Candidates.tokenizer) == (
        3, (1,)
    )  # fmt: skip
    corpus = build_corpus(DOCUMENTS, tokenizer, DATASET)
    whole, named = (
        measure(
            load_model(config, source, candidates=n), corpus, ks=(1,), engine=EngineConfig(), folder=tmp_path / str(n)
        )
        for n in (None, entries)
    )
    assert (whole.ranks.vocab_size, named.ranks.vocab_size) == (ROWS, entries)
    assert (named.ranks.rank <= whole.ranks.rank).all()
    assert (named.ranks.rank < whole.ranks.rank).any()  # padded rows were ranked above some targets
    assert named.ce < whole.ce
    absent = np.setdiff1d(np.arange(entries), named.ranks.column("token"))  # as if the tokenizer could not name these
    holed = load_model(config, source, candidates=entries, without=absent.tolist())
    left = measure(holed, corpus, ks=(1,), engine=EngineConfig(), folder=tmp_path / "left")
    assert left.ranks.rank.max() <= entries - len(absent)
    assert not np.isin(left.ranks.column("top"), absent).any()
    assert left.ce < named.ce


def test_pickles_only_by_name(tmp_path: Path) -> None:
    from rbptrack.models.checkpoint import check_folder

    config, source = folder_of("opt", tmp_path / "model")
    model = transformers.AutoModelForCausalLM.from_pretrained(config.path)
    torch.save(model.state_dict(), tmp_path / "model/pytorch_model.bin")
    (tmp_path / "model/model.safetensors").unlink()
    with pytest.raises(BadInput, match=r"only pickled weights.*model\.pickles=true"):
        check_folder(config)
    with pytest.raises(BadInput, match=r"only pickled weights.*model\.pickles=true"):
        load_model(config, source)
    allowed = replace(config, pickles=True)
    check_folder(allowed)
    assert load_model(allowed, source).total_params == sum(p.numel() for p in model.parameters())


def test_a_tokenizer_from_elsewhere(tmp_path: Path) -> None:
    config, source = folder_of("gpt-neo", tmp_path / "model")
    other = tmp_path / "tokenizer"
    other.mkdir()
    for path in [
        p for p in (tmp_path / "model").iterdir() if "token" in p.name or p.name in ("vocab.json", "merges.txt")
    ]:
        path.rename(other / path.name)
    with pytest.raises(BadInput, match=r"model\.tokenizer=ORG/NAME"):
        load_tokenizer(source)
    assert len(load_tokenizer(of_tokenizer(replace(config, tokenizer=str(other)), source))) == 400


FAMILIES = {
    "pythia": "14m 31m 70m 160m 410m 1b 1.4b 2.8b 6.9b 12b",
    "gpt2": "small medium large xl",
    "opt": "125m 350m 1.3b 2.7b 6.7b 13b 30b 66b",
    "qwen2.5": "0.5b 1.5b 3b 7b 14b 32b 72b",
}


def test_every_config_composes_and_families_are_in_order() -> None:
    composer = Composer("config", [])
    names = composer.options("model")
    assert {n.split("/")[0] for n in names} >= {
        *FAMILIES, "pythia-deduped", "mamba", "rwkv", "gpt-neo", "tinystories", "smollm2", "olmo2", "llama3", "qwen3",
        "gemma2", "llama2", "phi2", "mistral", "deepseek", "distilgpt2", "nano", "hf",
    }  # fmt: skip
    for family, sizes in FAMILIES.items():
        assert sorted((n for n in names if n.startswith(f"{family}/")), key=size_key) == [
            f"{family}/{size}" for size in sizes.split()
        ]
    elsewhere = ("nano-seeds/", "nano-checkpoints/", "pythia-checkpoints/")  # 1,566 names; test_checkpoints has them
    names = [n for n in names if not n.startswith(elsewhere) and n != "default"]  # which is nano/115k
    models = conf_folder() / "model"
    for name in (n for n in names if n != "hf"):
        config = OmegaConf.merge(OmegaConf.structured(ModelConfig), OmegaConf.load(models / f"{name}.yaml"))
        assert (config.family, config.size) == tuple(name.split("/"))
    firsts = {n.partition("/")[0]: n for n in sorted(names, key=size_key, reverse=True)}  # they differ in values only
    for name in firsts.values():
        extra = ["model.repo=org/Name-1.4B-base"] if name == "hf" else []
        config = composer.compose_typed([f"model={name}", *extra])
        wanted = ("name-base", "1.4b") if name == "hf" else tuple(name.split("/"))
        assert (config.model.family, config.model.size) == wanted
    for name in composer.options("dataset"):
        extra = {"hf": ["dataset.repo=org/news"], "files": ["dataset.files=[a.txt]"]}.get(name, [])
        for protocol in composer.options("protocol"):
            config = composer.compose_typed([f"dataset={name}", f"protocol={protocol}", *extra])
            titles = {"hf": "news", "paloma": "paloma-c4_100_domains"}  # what the repository or the config is called
            assert config.dataset.name == titles.get(name, name)
            assert (config.rank.value == "strict") == (protocol == "paper")


@pytest.mark.parametrize(
    ("repo", "path", "wanted"),
    [
        ("EleutherAI/pythia-70m-deduped", "", ("pythia-deduped", "70m")),
        ("Qwen/Qwen2.5-0.5B", "", ("qwen2.5", "0.5b")),
        ("openai-community/gpt2", "", ("gpt2", "")),
        ("", "/models/mine_350M", ("mine", "350m")),
        ("", "/models/6k", ("6k", "")),
    ],
)
def test_family_and_size_are_read_off_a_name(repo: str, path: str, wanted: tuple[str, str]) -> None:
    from rbptrack.config.registration import family_and_size

    assert family_and_size(repo, path) == wanted


def test_shapes_are_read_from_json(tmp_path: Path) -> None:
    """The counts above go through the same config.json as a repository's."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    config = ModelConfig(family="gpt2", size="small", path=str(tmp_path))
    assert count_parameters(load_config(of_model(config))).non_embedding == 85_056_000
