"""A cell's model and texts, checked to fit each other, and kept for the next cell, which often asks for them again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from rbptrack.config.schema import Candidates, ModelConfig
from rbptrack.console.progress import spinner
from rbptrack.corpus.chat import template_of
from rbptrack.corpus.documents import load_documents
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import tokenise
from rbptrack.models.architecture import (
    Parameters,
    candidates,
    check_compatible,
    check_same_tokenizer,
    count_parameters,
    load_config,
)
from rbptrack.models.causal import CausalModel, Reference
from rbptrack.models.checkpoint import check_folder, check_own_tokens
from rbptrack.models.loading import load_model
from rbptrack.models.tokenizer import load_tokenizer, rules_of
from rbptrack.sources.cache import remembered
from rbptrack.sources.pin import Pinned
from rbptrack.sweep.cells import Cell, cache_key

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_MAX_TOKENS = 20_000_000  # of texts that are kept: some 20 bytes each


@dataclass(frozen=True)
class Fit:
    """What was found out while a cell's model, tokenizer, texts and reference were checked to fit each other.

    Attributes:
        candidates: how many rows of the head a target is ranked among.
        without: rows among them that are left out, because the tokenizer cannot name them.
        template: the chat template that renders documents; empty without dataset.chat.
        reference_candidates: `candidates` of the reference.
        entries: how many of both heads' first rows are compared.

    """

    candidates: int
    without: tuple[int, ...] = ()
    template: str = ""
    reference_candidates: int = 0
    entries: int = 0


class Loader:
    """Loads cells; keeps the last model, its reference, and texts."""

    def __init__(self) -> None:
        self._configs: dict[str, Any] = {}
        self._tokenizers: dict[str, PreTrainedTokenizerBase] = {}
        self._parameters: dict[str, Parameters] = {}
        self._fits: dict[str, Fit] = {}
        self._model = _LastModel()
        self._reference = _LastModel()
        self._corpora: dict[str, Corpus] = {}

    def load(self, cell: Cell) -> tuple[CausalModel, Corpus]:
        """The model on its device, and the dataset as sequences of its tokens.

        Raises:
            BadInput: model, tokenizer, texts and reference do not fit each other, or cannot be read.

        """
        fit = self.fit(cell)
        with spinner(f"reading and tokenizing {cell.config.dataset.name}"):
            corpus = self.corpus(cell)
        with spinner(f"loading {cell.config.model.name}"):
            model = self._model.load(cell.config.model, cell.weights, fit.candidates, fit.without)
            if cell.config.reference is None or cell.reference is None:
                self._reference.drop()
                return model, corpus
            reference = cell.config.reference
            other = self._reference.load(reference, cell.reference, fit.reference_candidates, fit.without)
        return replace(model, reference=Reference(reference.name, other, fit.entries)), corpus

    def fit(self, cell: Cell) -> Fit:
        """Check a cell as far as that goes without weights and texts.

        Raises:
            BadInput: a model's folder lacks something, or the tokenizer, the length of sequences or the reference does
                not fit the model.

        """
        if cell.fingerprint not in self._fits:
            self._fits[cell.fingerprint] = self._checked(cell)
        return self._fits[cell.fingerprint]

    def corpus(self, cell: Cell) -> Corpus:
        """The dataset as sequences of the model's tokens; of one tokenizer for all models of a family."""
        key = self._corpus_key(cell)
        if key not in self._corpora:
            if sum(len(corpus.token) for corpus in self._corpora.values()) > _MAX_TOKENS:
                self._corpora.clear()
            tokenizer = self.tokenizer(cell)
            dataset = cell.config.dataset
            documents = load_documents(dataset, cell.texts)
            tokens = tokenise(documents, tokenizer, dataset.separator, self.fit(cell).template)
            self._corpora[key] = build_corpus(tokens, tokenizer, dataset)
        return self._corpora[key]

    def tokens(self, cell: Cell) -> tuple[int, int]:
        """Return how many tokens of a cell are scored, and how many the model reads.

        The numbers are kept on disk, because reading and tokenising the texts takes seconds.
        """

        def count() -> str:
            corpus = self.corpus(cell)
            return f"{corpus.num_targets} {int(corpus.lengths.sum())}"

        scored, read = remembered(f"tokens/{self._corpus_key(cell)}", count).split()
        return int(scored), int(read)

    def tokenizer(self, cell: Cell) -> PreTrainedTokenizerBase:
        """The cell's tokenizer."""
        return self._tokenizer(cell.tokenizer)

    def architecture(self, source: Pinned) -> Any:
        """The transformers config of a model."""
        if source.identity not in self._configs:
            self._configs[source.identity] = load_config(source)
        return self._configs[source.identity]

    def parameters(self, source: Pinned) -> Parameters:
        """A model's parameters, counted without weights.

        The numbers are kept on disk, because importing the code of a model takes seconds.
        """

        def count() -> str:
            return json.dumps(asdict(count_parameters(self.architecture(source))))

        if source.identity not in self._parameters:
            line = remembered(f"parameters/{cache_key(source=source.identity)}", count)
            self._parameters[source.identity] = Parameters(**json.loads(line))
        return self._parameters[source.identity]

    def _corpus_key(self, cell: Cell) -> str:
        """Changes with the texts, the rules by which they are cut, and the libraries that read them."""
        return cache_key(
            dataset=repr(replace(cell.config.dataset, name="")),
            texts=cell.texts.identity,
            rules=rules_of(self.tokenizer(cell)),
            template=self.fit(cell).template,
        )

    def _tokenizer(self, source: Pinned) -> PreTrainedTokenizerBase:
        if source.identity not in self._tokenizers:
            self._tokenizers[source.identity] = load_tokenizer(source)
        return self._tokenizers[source.identity]

    def _checked(self, cell: Cell) -> Fit:
        config = cell.config
        check_folder(config.model)
        architecture = self.architecture(cell.weights)
        tokenizer = self._tokenizer(cell.tokenizer)
        if config.model.gguf and config.model.tokenizer:
            check_own_tokens(config.model.name, cell.weights, tokenizer)
        check_compatible(config.model.name, architecture, tokenizer, config.dataset.seq_len)
        rows, without = candidates(architecture, tokenizer, config.candidates)
        template = ""
        if config.dataset.chat:
            template = template_of(config.model.chat_template, tokenizer, config.model.name)
        return self._with_reference(cell, Fit(rows, without, template))

    def _with_reference(self, cell: Cell, fit: Fit) -> Fit:
        """Check a cell's reference, if it has one, and complete its fit."""
        reference = cell.config.reference
        if reference is None or cell.reference is None or cell.reference_tokenizer is None:
            return fit
        check_folder(reference)
        tokenizer = self._tokenizer(cell.tokenizer)
        own_tokenizer = self._tokenizer(cell.reference_tokenizer)
        architecture = self.architecture(cell.reference)
        check_compatible(f"reference {reference.name}", architecture, own_tokenizer, cell.config.dataset.seq_len)
        check_same_tokenizer(reference.name, tokenizer, own_tokenizer)
        rows, _ = candidates(architecture, tokenizer, cell.config.candidates)
        named_rows = [
            candidates(both, tokenizer, Candidates.tokenizer)[0]
            for both in (self.architecture(cell.weights), architecture)
        ]
        return replace(fit, reference_candidates=rows, entries=min(named_rows))


class _LastModel:
    """The model that was loaded last."""

    _key = ""
    _model: CausalModel | None = None

    def load(self, model: ModelConfig, weights: Pinned, rows: int, without: tuple[int, ...]) -> CausalModel:
        key = repr((weights, model, rows, without))  # every option of loading is in the model's config
        if self._model is None or self._key != key:
            self.drop()  # before loading: two models need not fit
            self._model = load_model(model, weights, candidates=rows, without=without)
            self._key = key
        return self._model

    def drop(self) -> None:
        self._model = None
