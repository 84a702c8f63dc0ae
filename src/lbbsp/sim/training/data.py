"""Data to train on: handwritten digits, which scikit-learn brings, and files in the libsvm format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lbbsp.core.order import global_order
from lbbsp.core.types import FloatArray
from lbbsp.errors import ConfigurationError, MissingDependencyError

__all__ = ["Split", "digits", "libsvm"]

HELD_OUT = 0.2


@dataclass(frozen=True, eq=False, kw_only=True)
class Split:
    """Samples to train on, and others held out.

    Args:
        name: of the data.
        x: features, a row a sample; a numpy matrix or a scipy CSR one.
        y: labels.
        x_held: features of the held-out samples.
        y_held: their labels.
    """

    name: str
    x: Any
    y: FloatArray
    x_held: Any
    y_held: FloatArray

    @classmethod
    def of(cls, name: str, x: Any, y: FloatArray, *, seed: int = 0) -> Split:
        """A fifth is held out, drawn by ``seed``."""
        order = global_order(y.size, seed=seed, epoch=0)
        held = int(y.size * HELD_OUT)
        return cls(name=name, x=x[order[held:]], y=y[order[held:]], x_held=x[order[:held]], y_held=y[order[:held]])


def digits() -> Split:
    """1,797 images of 8 by 8 pixels, ten classes, intensities in [0, 1].

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI, 1998, as shipped with
    scikit-learn.
    """
    x, y = _sklearn().load_digits(return_X_y=True)
    return Split.of("digits", x / 16.0, y.astype(np.float64))


def libsvm(path: str | Path) -> Split:
    """Two classes from a file in the libsvm format (``.gz`` too), labels as -1 and 1, and a column of ones.

    Raises:
        ConfigurationError: the file cannot be read or has not two classes.
    """
    path = Path(path)
    try:
        x, y = _sklearn().load_svmlight_file(str(path))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{path}: cannot be read as libsvm ({error}); give a file in that format") from error
    classes = np.unique(y)
    if classes.size != 2:
        raise ConfigurationError(f"{path}: has {classes.size} classes; a linear task needs two")
    from scipy import sparse

    x = sparse.csr_matrix(sparse.hstack([x, sparse.csr_matrix(np.ones((x.shape[0], 1)))]))
    return Split.of(path.name.partition(".")[0], x, np.where(y == classes[1], 1.0, -1.0))


def _sklearn() -> Any:
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingDependencyError(
            'data to train on needs scikit-learn, which is not installed: pip install "lbbsp[sim]"'
        ) from error
    return datasets
