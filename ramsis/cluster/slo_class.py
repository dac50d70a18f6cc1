"""SLO classes: shares of the requests, each with its own deadline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ramsis.errors import ABOVE_ZERO, InvalidValueError, check_positive
from ramsis.profiles.values import MOST_MS

LONGEST_SLO_MS = MOST_MS

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, order=True)
class SloClass:
    """A share of the requests and the time in which they want an answer.

    Attributes
    ----------
    slo_ms : float
        Deadline after arrival, > 0, up to :data:`LONGEST_SLO_MS`.
    share : float
        Of all requests, in (0, 1].

    Raises
    ------
    InvalidValueError
        A number out of range.
    """

    slo_ms: float
    share: float = 1.0

    def __post_init__(self) -> None:
        check_positive(slo_ms=self.slo_ms)
        if self.slo_ms > LONGEST_SLO_MS:
            raise InvalidValueError("longer than any deadline", where="slo_ms", value=self.slo_ms,
                                    allowed=f"up to {LONGEST_SLO_MS:g} ms")
        ABOVE_ZERO.required(f"class of {self.slo_ms:g} ms", self.share,
                            "not a share of the requests")

    @property
    def label(self) -> str:
        """The SLO with its unit, as in file names.

        >>> SloClass(62.5, 0.3).label
        '62.5ms'
        """
        return f"{self.slo_ms:g}ms"


def classes_of(slo_ms: float | Sequence[SloClass]) -> tuple[SloClass, ...]:
    """Return merged SLO classes from an SLO in ms, or from classes.

    >>> classes_of(100.0)
    (SloClass(slo_ms=100.0, share=1.0),)
    """
    return merged_classes([SloClass(slo_ms)] if isinstance(slo_ms, (int, float)) else slo_ms)


def merged_classes(classes: Sequence[SloClass]) -> tuple[SloClass, ...]:
    """Return the classes by rising SLO, equal SLOs merged, with shares that sum to 1.

    >>> merged_classes([SloClass(150.0, 0.5), SloClass(100.0, 0.25), SloClass(100.0, 0.25)])
    (SloClass(slo_ms=100.0, share=0.5), SloClass(slo_ms=150.0, share=0.5))
    """
    total = math.fsum(slo_class.share for slo_class in classes)
    if abs(total - 1.0) > _ROUNDING:
        raise InvalidValueError("shares of the SLO classes do not sum to 1", where="slo_ms",
                                value=round(total, 9), allowed="1")
    levels = sorted({float(slo_class.slo_ms) for slo_class in classes})
    if len(levels) == 1:
        return (SloClass(levels[0]),)
    shares = [math.fsum(slo_class.share for slo_class in classes if slo_class.slo_ms == slo)
              for slo in levels]
    return tuple(SloClass(slo, min(share, 1.0))
                 for slo, share in zip(levels, shares, strict=True))
