"""A competing busy process, run as a file: ``python -I -S _busy.py PARENT_PID LIFETIME_S``.

It ends when its parent does, however that died, for its parent's number changes then.  (Linux' parent-death
signal would not do: it fires when the *thread* that started the process ends.)  At the latest it ends after
its lifetime.  It imports nothing that takes time.
"""

import os
import sys
import time


def main() -> None:
    """Spin until the parent or the lifetime ends."""
    parent, end_s = int(sys.argv[1]), time.monotonic() + float(sys.argv[2])
    while os.getppid() == parent and time.monotonic() < end_s:
        for _ in range(10_000):  # a fraction of a millisecond between looks
            pass


if __name__ == "__main__":
    main()
