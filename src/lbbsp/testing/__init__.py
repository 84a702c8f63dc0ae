"""For authors of plug-ins: contract suites to inherit, and ranks as threads.

::

    class TestMyPredictor(PredictorContract):
        predictor = MyPredictor()
"""

from lbbsp.testing.policy import PolicyContract
from lbbsp.testing.predictor import PredictorContract
from lbbsp.testing.ranks import run_ranks

__all__ = ["PolicyContract", "PredictorContract", "run_ranks"]
