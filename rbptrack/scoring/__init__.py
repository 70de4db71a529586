"""Computes ranks from hidden states, in chunks of logits, without the full logits of a corpus."""

from rbptrack.scoring.comparison import PairScorer
from rbptrack.scoring.head import Head
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores, scores_by_definition

__all__ = ["Head", "PairScorer", "Scorer", "Scores", "scores_by_definition"]
