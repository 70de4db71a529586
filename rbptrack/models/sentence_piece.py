"""Build fast tokenizers from the vocabularies of sentencepiece, which tokenizer.model and GGUF files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rbptrack.base.errors import BadInput, first_line

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

FILES = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
"""Names that the file of a sentencepiece model has in the folder of a language model."""

_ORDINARY = 1  # the type of a piece of text that pieces are joined to
_USER_DEFINED = 4  # the type of a piece that is never split
_BPE = 2  # the type of a model that joins pairs of pieces; all others that are supported are unigram models
_UNIGRAM = 1
_MAX_PROBED_PIECES = 50
REMEDY = "; model.tokenizer=ORG/NAME uses another tokenizer"

SPACE = "▁"  # sentencepiece writes a space as this character


def pair_merges(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Return the merges of a BPE vocabulary of sentencepiece, which joins the two pieces with the best joint score."""
    from transformers.tokenization_utils_base import generate_merges

    ids = {piece: number for number, piece in enumerate(pieces)}
    merges: list[tuple[str, str]] = generate_merges(ids, dict(zip(pieces, scores, strict=True)))
    return merges


def has_equal_scores(scores: Mapping[str, float]) -> bool:
    """Return whether two pieces that merges make have the same score. `scores` holds those of the ordinary pieces.

    sentencepiece then joins the pair that comes first in the text. Fast tokenizers have an order of pairs instead, and
    may split a text in another way. sentencepiece never trains such vocabularies. But pieces that were added to a
    trained vocabulary, as to Llama's for Chinese, have the score 0.
    """
    if len({*scores.values()}) == len(scores):
        return False
    made = {"".join(pair) for pair in pair_merges([*scores], [*scores.values()])}
    return len({scores[piece] for piece in made}) < len(made)


def set_sentencepiece_rules(backend: Tokenizer, normalisers: Sequence[Any], *, prefix: bool) -> None:
    """Make a tokenizer normalise texts, add a space before a text if `prefix`, and write spaces as it does."""
    from tokenizers import decoders, normalizers

    spaces = [normalizers.Prepend(SPACE)] if prefix else []
    backend.normalizer = normalizers.Sequence([*normalisers, *spaces, normalizers.Replace(" ", SPACE)])
    backend.pre_tokenizer = None
    steps: list[Any] = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)


def check_sentencepiece_installed(file: Path) -> None:
    """Raise BadInput if a file is a model of sentencepiece, and the package is not installed."""
    with file.open("rb") as content:
        is_sentencepiece = content.read(1) == b"\n"  # the first field of a model; files of tiktoken begin with a letter
    if is_sentencepiece and find_spec("sentencepiece") is None:
        raise BadInput(f"{file} is read by the package sentencepiece: pip install 'rbptrack[sentencepiece]'")


def follow_sentencepiece(tokenizer: PreTrainedTokenizerBase, file: Path, texts: Sequence[str]) -> None:
    """Make a fast tokenizer split texts as the sentencepiece model does from whose file it was loaded.

    transformers leaves out rules of the model: its normaliser, and how it treats spaces. If the tokenizer and
    sentencepiece give other pieces for one of the texts, the tokenizer gets the rules of the file. It is changed in
    place. If `file` is not a sentencepiece model but one of tiktoken, nothing is done.

    Raises:
        BadInput: the file is damaged, or sentencepiece still gives other pieces for one of the texts.

    """
    with file.open("rb") as content:
        if content.read(1) != b"\n":
            return
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

    try:
        processor = SentencePieceProcessor(model_file=str(file))
        parse: Any = sentencepiece_model_pb2
        model = parse.ModelProto.FromString(processor.serialized_model_proto())
    except Exception as error:  # the library in C++ raises RuntimeError and others
        raise BadInput(f"{file} is damaged or not a model of sentencepiece ({first_line(error)})") from error
    defined = [piece.piece.replace(SPACE, " ") for piece in model.pieces if piece.type == _USER_DEFINED]
    ordinary = {piece.piece: piece.score for piece in model.pieces if piece.type == _ORDINARY}
    if model.trainer_spec.model_type == _BPE and has_equal_scores(ordinary):
        raise BadInput(f"{file} gives several pieces the same score, which fast tokenizers cannot represent{REMEDY}")
    probes = [*texts, "  a  b ", "\ta\n b", *(f"x{piece}y {piece} z" for piece in defined[:_MAX_PROBED_PIECES])]
    if _find_differing_text(tokenizer, processor, probes) is None:
        return
    ids = tokenizer.get_vocab()
    if all(ids.get(piece.piece) == number for number, piece in enumerate(model.pieces)):
        _set_model(tokenizer.backend_tokenizer, model, defined)
    text = _find_differing_text(tokenizer, processor, probes)
    if text is not None:
        raise BadInput(
            f"the tokenizer of {file.parent} cannot be loaded as its {file.name} describes it: sentencepiece splits "
            f"{text!r:.60} in another way{REMEDY}"
        )


def _find_differing_text(tokenizer: PreTrainedTokenizerBase, processor: Any, texts: Sequence[str]) -> str | None:
    """Return a text for which a tokenizer and sentencepiece give other pieces, or None."""
    for text in texts:
        ids: Any = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        pieces = [processor.id_to_piece(number) for number in processor.encode(text)]
        if tokenizer.convert_ids_to_tokens(ids) != pieces:
            return text
    return None


def _set_model(backend: Tokenizer, model: Any, defined: Sequence[str]) -> None:
    """Give a fast tokenizer the pieces, scores and rules of a sentencepiece model, a protocol buffer."""
    from tokenizers import AddedToken, Regex, models, normalizers

    pieces = [piece.piece for piece in model.pieces]
    scores = [piece.score for piece in model.pieces]
    rules = model.trainer_spec
    if rules.model_type == _BPE:
        backend.model = models.BPE(
            vocab={piece: number for number, piece in enumerate(pieces)},
            merges=pair_merges(pieces, scores),
            unk_token=rules.unk_piece,
            fuse_unk=True,
            byte_fallback=rules.byte_fallback,
        )
    elif rules.model_type == _UNIGRAM:
        vocab = list(zip(pieces, scores, strict=True))
        backend.model = models.Unigram(vocab, unk_id=rules.unk_id, byte_fallback=rules.byte_fallback)
    normaliser = model.normalizer_spec
    steps: list[Any] = []
    if normaliser.precompiled_charsmap:
        steps.append(normalizers.Precompiled(normaliser.precompiled_charsmap))
    if normaliser.remove_extra_whitespaces:
        steps += [normalizers.Replace(Regex(r"\A +| +\z"), ""), normalizers.Replace(Regex(" {2,}"), " ")]
    set_sentencepiece_rules(backend, steps, prefix=normaliser.add_dummy_prefix)
    backend.add_tokens([AddedToken(piece, normalized=False) for piece in defined])
