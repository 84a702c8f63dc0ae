"""How a rank's batch is kept within its memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lbbsp.core.memory import UpperFit
from lbbsp.errors import ConfigurationError

__all__ = ["Memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How this rank's batch is kept within its memory; ranks may differ.

    Args:
        learn: learn a cap from the peaks of the batches run; None for yes on CUDA devices and no elsewhere.  On
            CPUs it goes by the process's resident memory, on Linux.
        margin: fraction of the memory to leave free when learning.
        caps_file: a JSON file, best beside the checkpoint, to which a rank that runs out of memory writes its
            cap, and from which it takes it when the job starts again; None for none.
        micro_batches: a batch beyond the cap may come, because the script splits it with
            `LoadBalancer.micro_batches`; the cap then holds for each piece.

    Raises:
        ConfigurationError: ``margin`` is not in [0, 1).
    """

    learn: bool | None = None
    margin: float = 0.1
    caps_file: str | Path | None = None
    micro_batches: bool = False

    def __post_init__(self) -> None:
        self.fit()
        if self.caps_file is not None and Path(self.caps_file).is_dir():
            raise ConfigurationError(f"caps_file={str(self.caps_file)!r} is a folder: name a file in it")

    def fit(self) -> UpperFit:
        """The fit that these options describe."""
        return UpperFit(margin=self.margin)
