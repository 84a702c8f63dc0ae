"""A worker for the tests: joins, says so, and is busy until its launcher is gone."""

import os
import sys

from lbbsp.interfere import join, measure_share

launcher = os.getppid()
join(int(sys.argv[1]))
print("joined", *([measure_share()] if "measure" in sys.argv else []), flush=True)
while os.getppid() == launcher:
    for _ in range(10_000):
        pass
