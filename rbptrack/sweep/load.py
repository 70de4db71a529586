"""Load the models and texts of cells, check that they fit together, and keep them for the next cell."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from rbptrack.config.schema import Candidates, ModelConfig
from rbptrack.console.output import print_text
from rbptrack.console.progress import spinner
from rbptrack.corpus.chat import find_chat_template
from rbptrack.corpus.documents import describe_empty_documents, load_documents
from rbptrack.corpus.sequences import Corpus, build_corpus
from rbptrack.corpus.tokens import tokenise
from rbptrack.models.causal import CausalModel, Reference
from rbptrack.models.compatibility import check_compatible, check_same_tokenizer, check_token_ids, choose_candidates
from rbptrack.models.gguf_file import gguf_path, read_gguf
from rbptrack.models.gguf_tokenizer import check_gguf_tokens
from rbptrack.models.loading import load_model
from rbptrack.sources.cache import cached_line
from rbptrack.sources.manifest import reading
from rbptrack.sources.pin import Pinned
from rbptrack.sweep import lookups
from rbptrack.sweep.cells import Cell

_MAX_KEPT_TOKENS = 20_000_000  # tokenised texts are kept up to this number of tokens; a token takes about 20 bytes


@dataclass(frozen=True)
class LoadSettings:
    """Settings for loading a cell. They follow from its model, its tokenizer and its reference.

    Attributes:
        num_candidates: a target is ranked among the first `num_candidates` rows of the output head.
        excluded_ids: ids of candidates that are not ranked, because the tokenizer has no token for them.
        template: the chat template that renders documents; empty if `dataset.chat` is false.
        num_reference_candidates: `num_candidates` for the output head of the reference; 0 without a reference.
        num_shared_entries: the distributions of model and reference are compared over the first
            `num_shared_entries` entries of the vocabulary; 0 without a reference.

    """

    num_candidates: int
    excluded_ids: tuple[int, ...] = ()
    template: str = ""
    num_reference_candidates: int = 0
    num_shared_entries: int = 0


class Loader:
    """Loads the models and texts of cells. Keeps the texts, the last model and the last reference for later cells.

    Attributes:
        seconds: the wall time of each part of the work so far, by the name of the part.

    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._preparation: threading.Thread | None = None
        self._settings: dict[str, LoadSettings] = {}
        self._model = _LastModel()
        self._reference = _LastModel()
        self._corpora: dict[str, Corpus] = {}

    def load(self, cell: Cell) -> tuple[CausalModel, Corpus]:
        """Load the model of a cell onto its device, and the dataset as sequences of the model's tokens.

        Raises:
            BadInput: the model, tokenizer, texts or reference cannot be read, or do not fit together.

        """
        settings = self.check(cell)
        corpus = self.checked_corpus(cell)
        with self.timed("loading"), spinner(f"loading {cell.config.model.name}"):
            model = self._model.load(cell.config.model, cell.weights, settings.num_candidates, settings.excluded_ids)
            if cell.config.reference is None or cell.reference is None:
                self._reference.drop()
                return model, corpus
            reference = cell.config.reference
            reference_model = self._reference.load(
                reference, cell.reference, settings.num_reference_candidates, settings.excluded_ids
            )
        return replace(model, reference=Reference(reference.name, reference_model, settings.num_shared_entries)), corpus

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time that a block takes to a part of `seconds`."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0) + time.perf_counter() - began

    def prepare(self, cell: Cell) -> None:
        """Tokenize the texts of a later cell in a thread. Errors are left to the loading of the cell."""
        self._preparation = threading.Thread(target=self._tokenise_ahead, args=[cell], daemon=True)
        self._preparation.start()

    def _tokenise_ahead(self, cell: Cell) -> None:
        with suppress(Exception):
            self.corpus(cell)

    def check(self, cell: Cell) -> LoadSettings:
        """Check that a cell can be measured, without loading weights or texts. Returns the settings to load it.

        Raises:
            BadInput: the tokenizer, the length of sequences or the reference does not fit the model, or a file has
                changed since it was hashed.

        """
        if cell.fingerprint not in self._settings:
            self._settings[cell.fingerprint] = self._check_cell(cell)
        return self._settings[cell.fingerprint]

    def checked_corpus(self, cell: Cell) -> Corpus:
        """Return the dataset of a cell as sequences of tokens. Raises BadInput if the model has no row for a token."""
        with self.timed("texts"), spinner(f"reading and tokenizing {cell.config.dataset.name}"):
            if self._preparation is not None:
                self._preparation.join()
            corpus = self.corpus(cell)
        tokenizer = lookups.tokenizer(cell.tokenizer)
        for config, weights in ((cell.config.model, cell.weights), (cell.config.reference, cell.reference)):
            if config is not None and weights is not None:
                largest_id = int(corpus.token.max(initial=0))
                check_token_ids(config.name, lookups.architecture(weights), tokenizer, largest_id)
        return corpus

    def corpus(self, cell: Cell) -> Corpus:
        """Return the dataset of a cell as sequences of tokens. Models with equal tokenizers share it."""
        key = self._corpus_key(cell)
        if key not in self._corpora:
            if sum(len(corpus.token) for corpus in self._corpora.values()) > _MAX_KEPT_TOKENS:
                self._corpora.clear()
            tokenizer = lookups.tokenizer(cell.tokenizer)
            dataset = cell.config.dataset
            documents = load_documents(dataset, cell.texts)
            note = describe_empty_documents(documents, dataset)
            if note:
                print_text(note)
            tokens = tokenise(documents, tokenizer, dataset.separator, self.check(cell).template)
            self._corpora[key] = build_corpus(tokens, tokenizer, dataset)
        return self._corpora[key]

    def count_tokens(self, cell: Cell) -> tuple[int, int]:
        """Count the tokens of a cell that are scored, and the tokens that the model reads.

        The numbers are cached on disk, because reading and tokenising the texts takes seconds.
        """

        def count() -> str:
            corpus = self.corpus(cell)
            return f"{corpus.num_targets} {int(corpus.lengths.sum())}"

        scored_tokens, read_tokens = cached_line(f"tokens/{self._corpus_key(cell)}", count).split()
        return int(scored_tokens), int(read_tokens)

    def _corpus_key(self, cell: Cell) -> str:
        """Return a key for the cache of tokenised texts. Cells with the same key have the same tokens."""
        return lookups.cache_key(
            dataset=repr(replace(cell.config.dataset, name="")),
            texts=cell.texts.identity,
            rules=lookups.tokenizer_rules(cell.tokenizer),
            template=self.check(cell).template,
        )

    def _check_cell(self, cell: Cell) -> LoadSettings:
        config = cell.config
        architecture = lookups.architecture(cell.weights)
        tokenizer = lookups.tokenizer(cell.tokenizer)
        if config.model.gguf and config.model.tokenizer:
            check_gguf_tokens(config.model.name, read_gguf(gguf_path(cell.weights)), tokenizer)
        check_compatible(config.model.name, architecture, tokenizer, config.dataset.seq_len)
        num_candidates, excluded_ids = choose_candidates(architecture, tokenizer, config.candidates)
        template = ""
        if config.dataset.chat:
            with reading([cell.template] if cell.template else []):
                template = find_chat_template(config.model.chat_template, tokenizer, config.model.name)
        return self._check_reference(cell, LoadSettings(num_candidates, excluded_ids, template))

    def _check_reference(self, cell: Cell, settings: LoadSettings) -> LoadSettings:
        """Check the reference of a cell, if it has one. Returns the settings, completed for the reference."""
        reference = cell.config.reference
        if reference is None or cell.reference is None or cell.reference_tokenizer is None:
            return settings
        tokenizer = lookups.tokenizer(cell.tokenizer)
        reference_tokenizer = lookups.tokenizer(cell.reference_tokenizer)
        architecture = lookups.architecture(cell.reference)
        seq_len = cell.config.dataset.seq_len
        check_compatible(f"reference {reference.name}", architecture, reference_tokenizer, seq_len)
        check_same_tokenizer(reference.name, tokenizer, reference_tokenizer)
        num_candidates, _ = choose_candidates(architecture, tokenizer, cell.config.candidates)
        model_entries, _ = choose_candidates(lookups.architecture(cell.weights), tokenizer, Candidates.tokenizer)
        reference_entries, _ = choose_candidates(architecture, tokenizer, Candidates.tokenizer)
        num_shared_entries = min(model_entries, reference_entries)
        return replace(settings, num_reference_candidates=num_candidates, num_shared_entries=num_shared_entries)


class _LastModel:
    """Loads models and keeps the last one, because consecutive cells often have the same model."""

    _key = ""
    _model: CausalModel | None = None

    def load(
        self, config: ModelConfig, weights: Pinned, num_candidates: int, excluded_ids: tuple[int, ...]
    ) -> CausalModel:
        key = repr((weights, config, num_candidates, excluded_ids))
        if self._model is None or self._key != key:
            self.drop()  # before loading, because memory may not suffice for two models
            self._model = load_model(config, weights, num_candidates=num_candidates, excluded_ids=excluded_ids)
            self._key = key
        return self._model

    def drop(self) -> None:
        self._model = None
