"""Make the worker processes of one machine unequal, so that balancing can be shown and measured there.

Two ways, one contract (`Interference`): CPU quotas by cgroup, which are exact but need the right to make
cgroups, and competing busy processes with ``nice``, which need no right at all and are an approximation.

The launcher holds the object and passes its environment on; every worker enters by itself, once its slow
imports are done::

    with interfere([0.8, 0.5, 0.3, 0.2]) as unequal:          # in the launcher
        start_workers(env=os.environ | unequal.environment())
        ...
        unequal.set_shares([0.2, 0.3, 0.5, 0.8])              # at any time

    join(rank)                                                # in each worker
"""

from lbbsp.interfere.base import Interference
from lbbsp.interfere.choose import available, interfere, join
from lbbsp.interfere.measure import measure_share
from lbbsp.interfere.replay import Replay
from lbbsp.interfere.trace import ShareTrace

__all__ = ["Interference", "Replay", "ShareTrace", "available", "interfere", "join", "measure_share"]
