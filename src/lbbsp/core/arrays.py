"""Array types, and arrays that cannot be changed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FloatArray", "IntArray", "frozen"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def frozen(values: npt.ArrayLike, dtype: type) -> np.ndarray:
    """A read-only copy of ``values``.

    Example:
        >>> frozen([1, 2], np.int64).flags.writeable
        False
    """
    array: np.ndarray = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array
