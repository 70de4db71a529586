"""Training checkpoints as configs: `model=pythia-checkpoints/*`, without a file for each of 1,540.

A ladder is a folder of models whose checkpoints are named by their step. Each of its configs exists without a file:
`pythia-checkpoints/70m-step1000` is Pythia 70m at that step. Hydra finds them through `rbptrack.config.checkpoints`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PYTHIA_SIZES = ("14m", "31m", "70m", "160m", "410m", "1b", "1.4b", "2.8b", "6.9b", "12b")
_PYTHIA_STEPS = (0, *(2**i for i in range(10)), *range(1000, 143_001, 1000))  # Biderman et al. 2023, section 2.4
_NANO_STEPS = (64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Checkpoints:
    """Models with checkpoints.

    Attributes:
        steps: of each size.
        tokens_per_step: training tokens D that a step reads.
        where: the keys of a size's config that say where its weights are; `{size}` and `{step}` are filled in.

    """

    steps: Mapping[str, tuple[int, ...]]
    tokens_per_step: int
    where: Mapping[str, str]


LADDERS: Mapping[str, Checkpoints] = {
    "pythia-checkpoints": Checkpoints(
        dict.fromkeys(_PYTHIA_SIZES, _PYTHIA_STEPS), 2_097_152, {"repo": "EleutherAI/pythia-{size}"}
    ),
    "nano-checkpoints": Checkpoints(
        dict.fromkeys(("6k", "15k", "38k"), _NANO_STEPS) | {"115k": _NANO_STEPS[1:]},
        2048,
        {"path": "${{embedded:checkpoints/{size}-step{step}}}", "tokenizer": "${{embedded:models/{size}}}"},
    ),
}


def names() -> Iterator[str]:
    """Yield every checkpoint's name in the group `model`: `pythia-checkpoints/70m-step1000`."""
    for folder, ladder in LADDERS.items():
        for size, steps in ladder.steps.items():
            yield from (f"{folder}/{size}-step{step}" for step in steps)


def config(name: str) -> dict[str, str | int] | None:
    """Return the config of a name of `names`; None for any other."""
    folder, _, leaf = name.partition("/")
    size, _, step = leaf.rpartition("-step")
    ladder = LADDERS.get(folder)
    if ladder is None or not step.isdigit() or int(step) not in ladder.steps.get(size, ()):
        return None
    where = {key: text.format(size=size, step=step) for key, text in ladder.where.items()}
    tokens = int(step) * ladder.tokens_per_step
    return {"family": folder, "size": size, **where, "revision": f"step{step}", "training_tokens": tokens}
