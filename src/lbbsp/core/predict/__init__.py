"""Speed predictors, one a file, behind one contract."""

from lbbsp.core.predict.adaptive_ema import AdaptiveEma
from lbbsp.core.predict.base import Observation, Predictor
from lbbsp.core.predict.ema import Ema
from lbbsp.core.predict.last import LastValue

__all__ = ["AdaptiveEma", "Ema", "LastValue", "Observation", "Predictor"]
