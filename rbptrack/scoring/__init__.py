"""Compute ranks from hidden states. Only a chunk of logits is in memory at any time."""

from rbptrack.scoring.comparison import PairScorer
from rbptrack.scoring.head import Head
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores

__all__ = ["Head", "PairScorer", "Scorer", "Scores"]
