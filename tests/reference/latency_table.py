"""The rules of the latency table, one batch size at a time: the slow twin of ``fill_row``."""

from itertools import combinations
from statistics import median

from ramsis.profiles import Origin


def entry(measured: dict[int, float], batch: int) -> tuple[float, Origin]:
    """l(m, b) and where it comes from, for the values ``measured`` by batch size."""
    own, origin = filled(measured, batch)
    larger = [value for size, value in measured.items() if size >= batch]
    if larger and min(larger) < own:
        return min(larger), Origin.PADDED
    return own, origin


def filled(measured: dict[int, float], batch: int) -> tuple[float, Origin]:
    """v(m, b): the measured value, or the filled one."""
    if batch in measured:
        return measured[batch], Origin.MEASURED
    last = max(measured)
    if batch > last:
        return measured[last] + (batch - last) * slope(measured), Origin.EXTRAPOLATED
    low = max(size for size in measured if size < batch)
    high = min(size for size in measured if size > batch)
    share = (batch - low) / (high - low)
    return (1 - share) * measured[low] + share * measured[high], Origin.INTERPOLATED


def run_as(measured: dict[int, float], batch: int) -> int:
    """The batch size to run."""
    value, origin = entry(measured, batch)
    larger = [size for size in measured if size >= batch and measured[size] == value]
    return min(larger) if origin is Origin.PADDED else batch


def slope(measured: dict[int, float]) -> float:
    """Growth per request beyond the largest measured batch size."""
    if len(measured) == 1:
        return measured[1]
    slopes = [(measured[b] - measured[a]) / (b - a) for a, b in combinations(measured, 2)]
    return max(0.0, median(slopes))
