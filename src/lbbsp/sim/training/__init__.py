"""Statistical efficiency, computed: real gradients on real data under a simulated clock."""

from lbbsp.sim.training.base import Task
from lbbsp.sim.training.data import Split, digits, libsvm
from lbbsp.sim.training.linear import LinearTask
from lbbsp.sim.training.mlp import MlpTask
from lbbsp.sim.training.virtual import Curve, train

__all__ = ["Curve", "LinearTask", "MlpTask", "Split", "Task", "digits", "libsvm", "train"]
