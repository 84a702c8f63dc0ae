"""A launcher for the tests, driven by lines of JSON on its standard input: ``launcher.py WAY SHARES``."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from lbbsp.errors import ConfigurationError
from lbbsp.interfere import interfere


def measure(pids: list[int], duration_s: float) -> list[float]:
    """The CPU share that each (single-threaded) process gets by the kernel's own count."""

    def now() -> list[tuple[float, int]]:
        return [(time.perf_counter(), int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])) for pid in pids]

    before = now()
    time.sleep(duration_s)
    return [
        (end_ns - start_ns) * 1e-9 / (end_s - start_s)
        for (start_s, start_ns), (end_s, end_ns) in zip(before, now(), strict=True)
    ]


def measure_of_ours(pids: list[int], duration_s: float) -> list[float]:
    """The same, as if nothing else ran on this machine: the part of what ours get together on each core."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    ours = pids + [pid for pid in map(int, children) if pid not in pids]
    got = measure(ours, duration_s)
    cores = [os.sched_getaffinity(pid) for pid in ours]
    together = [sum(share for share, other in zip(got, cores, strict=True) if other == core) for core in cores]
    return [share / total for share, total in zip(got, together, strict=True)][: len(pids)]


def main() -> None:
    way, shares = sys.argv[1], json.loads(sys.argv[2])
    with interfere(shares, way=way) as interference:
        workers = [
            subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("worker.py")), str(worker)],
                env=os.environ | interference.environment(),
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=worker % 2 == 0,  # as torchrun does it, and as multiprocessing does it
            )
            for worker in range(len(shares))
        ]
        for process in workers:
            assert process.stdout is not None
            assert process.stdout.readline() == "joined\n"
        pids = [process.pid for process in workers]
        print(json.dumps({"pids": pids, "describe": interference.describe()}), flush=True)
        for line in sys.stdin:
            command, value = json.loads(line)
            answer: dict[str, object] = {}
            if command == "measure":
                answer["measured"] = (measure if way == "quota" else measure_of_ours)(pids, value)
            else:
                try:
                    interference.set_shares(value)
                except ConfigurationError as error:
                    answer["error"] = str(error)
            print(json.dumps(answer | {"shares": interference.shares}), flush=True)
    cores = [len(os.sched_getaffinity(pid)) for pid in pids]
    for process in workers:
        process.kill()
        process.communicate()
    print(json.dumps({"cores": cores}), flush=True)


if __name__ == "__main__":
    main()
