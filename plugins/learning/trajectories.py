"""The rank of every token at every checkpoint: tokens that enter the first k, leave, are learnt, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rbptrack.ranks import FloatArray, IntArray
from rbptrack.stats.intervals import Interval
from rbptrack.stats.shares import Share, share_of

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """The tokens of a dataset over the checkpoints of one model.

    Attributes:
        trained: training tokens of each checkpoint, ascending, (checkpoints,).
        rank: of the target, (checkpoints, tokens).
        document: place of each token's document, or source, (tokens,).
        token: its id, (tokens,).

    """

    trained: FloatArray
    rank: IntArray
    document: IntArray
    token: IntArray

    def share(self, chosen: BoolArray, among: BoolArray | None = None) -> Share:
        """Return the share of tokens, (tokens,), among some, with its error over documents."""
        among = np.ones(len(chosen), dtype=np.bool_) if among is None else among
        sizes = np.bincount(self.document, weights=among)
        hits = np.bincount(self.document, weights=chosen & among)
        return share_of(hits[sizes > 0], sizes[sizes > 0])

    def flows(self, k: int) -> list[tuple[Share, Share]]:
        """Return the shares that enter the first k, and leave them, to each checkpoint: RBP_k changes by both."""
        inside = self.rank <= k
        flows = []
        for before, after in pairwise(inside):
            entering = after & ~before
            leaving = before & ~after
            if int(entering.sum()) - int(leaving.sum()) != int(after.sum()) - int(before.sum()):
                raise ArithmeticError(f"flows at k = {k} do not add up to the change of RBP_k")
            flows.append((self.share(entering), self.share(leaving)))
        return flows

    def states(self, k: int) -> BoolArray:
        """Return whether each token is inside, (checkpoints, tokens): it enters at R <= k and leaves above 2k.

        Source: hysteresis (Schmitt 1938): a rank that wavers around k is not learnt and forgotten each time.
        """
        states = [self.rank[0] <= k]
        for rank in self.rank[1:]:
            states.append((rank <= k) | (states[-1] & (rank <= 2 * k)))
        return np.stack(states)

    def learnt(self, k: int, *, span: int) -> IntArray:
        """Return the checkpoint from which each token is inside to the end, (tokens,); their number if unknown.

        A token that enters within the last `span` checkpoints is censored: it may not stay.
        """
        states = self.states(k)
        count = len(states)
        outside = np.where(states.all(axis=0), -1, count - 1 - np.argmax(~states[::-1], axis=0))  # for the last time
        since = outside + 1
        return np.where(since <= count - span, since, count)

    def learnt_by(self, since: IntArray, *, span: int, among: BoolArray | None = None) -> list[Share]:
        """Return the share of tokens learnt by each checkpoint that is not censored, (checkpoints - span + 1).

        Source: Kaplan and Meier, Journal of the American Statistical Association 53, 1958, all censored at one time.
        """
        return [self.share(since <= i, among) for i in range(len(self.trained) - span + 1)]

    def half(self, shares: Sequence[Share], level: float) -> Interval:
        """Return training tokens by which half are learnt, by the shares and their ends; NaN where not reached."""
        bands = [share.interval(level) for share in shares]
        reached = ([getattr(band, end) >= 0.5 for band in bands] for end in ("value", "high", "low"))
        return Interval(*(float(self.trained[at.index(True)]) if any(at) else float("nan") for at in reached))

    def half_life(self, k: int) -> float:
        """Return doublings of training tokens after which half of those that entered have left; NaN if not reached.

        Source: Kaplan and Meier 1958, of every stay that begins after the first checkpoint; those that last to the end
        are censored.
        """
        states = self.states(k)
        times = np.log2(self.trained)
        durations = list[FloatArray]()
        left = list[FloatArray]()
        for i in range(1, len(states) - 1):
            stays = states[i + 1 :, states[i] & ~states[i - 1]]
            gone = np.append(~stays, np.ones((1, stays.shape[1]), dtype=np.bool_), axis=0).argmax(axis=0)
            left.append((gone < len(stays)).astype(np.float64))
            durations.append(times[i + 1 + np.minimum(gone, len(stays) - 1)] - times[i])
        duration = np.concatenate(durations).round(9)
        event = np.concatenate(left)
        kept = 1.0
        for time in np.unique(duration[event > 0]):
            kept *= 1 - event[duration == time].sum() / (duration >= time).sum()
            if kept <= 0.5:
                return float(time)
        return float("nan")
