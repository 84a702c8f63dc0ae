"""Speed predictors, one a file, behind one contract."""

from lbbsp.core.predict.adaptive_ema import AdaptiveEma
from lbbsp.core.predict.autoregressive import AutoRegressive
from lbbsp.core.predict.base import Observation, Predictor
from lbbsp.core.predict.ema import Ema
from lbbsp.core.predict.last import LastValue
from lbbsp.core.predict.median import Median
from lbbsp.core.predict.mixture import Mixture
from lbbsp.core.predict.narx import Narx, NarxWeights

__all__ = [
    "AdaptiveEma",
    "AutoRegressive",
    "Ema",
    "LastValue",
    "Median",
    "Mixture",
    "Narx",
    "NarxWeights",
    "Observation",
    "Predictor",
]
