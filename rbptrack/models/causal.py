"""A loaded causal language model, split into backbone and head."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rbptrack.base.errors import BadInput
from rbptrack.models.backbone import Backbone
from rbptrack.scoring.head import Head


@dataclass(frozen=True)
class Reference:
    """A second model that reads the measured model's tokens. The distributions of both models are compared.

    Attributes:
        name: the name of the second model, such as `pythia-12b`.
        model: the second model, on the device of the measured model.
        entries: the number of vocabulary entries that are compared. They are the first rows of both heads, up to the
            tokenizer's largest id.

    """

    name: str
    model: CausalModel
    entries: int


@dataclass(frozen=True)
class CausalModel:
    """A loaded model, split into backbone and output head.

    Attributes:
        backbone: computes hidden states (batch, length, width) of token ids (batch, length), padded on the right.
        head: computes logits of hidden states.
        device: the device of the head.
        non_embedding_params: S, the number of parameters without embeddings and output head.
        total_params: the number of all parameters. Tied parameters count once.
        largest_width: the largest number of features that one of the backbone's layers writes.
        attention_heads: the number of attention heads if attention weights are held in memory (attention=eager),
            otherwise 0.
        is_spread: whether accelerate moves weights or activations between devices while the model runs.
        architecture: the model type of transformers, such as `gpt_neox`.
        quantisation: how the stored weights are quantised, such as `Q4_K_M` or `int8 torchao`. Empty if not quantised.
        max_length: the maximum length of a sequence in tokens, or None if the model sets no limit.
        notes: notes for the user on how the model is measured.
        reference: a second model to compare with while this model is measured, or None.

    """

    backbone: Backbone
    head: Head
    device: torch.device
    non_embedding_params: int
    total_params: int
    largest_width: int
    attention_heads: int
    is_spread: bool
    architecture: str = ""
    quantisation: str = ""
    max_length: int | None = None
    notes: tuple[str, ...] = ()
    reference: Reference | None = None

    @property
    def vocab_size(self) -> int:
        """|V|, the number of rows of the head. Padding rows count."""
        return self.head.vocab_size

    @property
    def largest_params(self) -> int:
        """The number of parameters of the model or of its reference, whichever is larger."""
        reference_params = self.reference.model.total_params if self.reference else 0
        return max(self.total_params, reference_params)

    @property
    def logits_per_token(self) -> int:
        """The number of logits that are in memory for each token: |V| of the model plus |V| of its reference."""
        reference_logits = self.reference.model.vocab_size if self.reference else 0
        return self.vocab_size + reference_logits

    def activation_bytes(self, length: int) -> int:
        """Estimate the bytes per token that the backbone's activations take in sequences of `length` tokens.

        If there is a reference, the larger of the two models' estimates is returned.
        """
        width = self.head.weight.shape[1]
        numbers = 12 * width + 4 * self.largest_width + 3 * self.attention_heads * length
        reference_bytes = self.reference.model.activation_bytes(length) if self.reference else 0
        return max(reference_bytes, self.head.weight.element_size() * numbers)

    def check_corpus(self, *, longest: int, largest_target: int) -> None:
        """Check that the model and its reference can read the longest sequence, and have a head row for every target.

        Args:
            longest: the number of tokens of the longest sequence.
            largest_target: the largest token id that is scored.

        Raises:
            BadInput: the sequence is too long, or the head has no row for the target.

        """
        if self.max_length is not None and longest > self.max_length:
            raise BadInput(f"the model reads at most {self.max_length} tokens at a time, but a sequence has {longest}")
        if largest_target >= self.vocab_size:
            raise BadInput(
                f"a text holds token {largest_target}, but the head ranks {self.vocab_size} entries only: "
                "the tokenizer belongs to another model"
            )
        if self.reference is None:
            return
        try:
            self.reference.model.check_corpus(longest=longest, largest_target=largest_target)
        except BadInput as error:
            raise BadInput(f"reference {self.reference.name}: {error}") from error
