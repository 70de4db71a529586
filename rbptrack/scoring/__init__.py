"""From hidden states to ranks: the head's product in chunks, compared and reduced without full logits."""

from rbptrack.scoring.comparison import PairScorer
from rbptrack.scoring.head import Head
from rbptrack.scoring.scorer import Scorer
from rbptrack.scoring.scores import Scores, reference

__all__ = ["Head", "PairScorer", "Scorer", "Scores", "reference"]
