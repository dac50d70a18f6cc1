"""What the benchmarks print at the end: each figure, its target, its ratios to references.

A time meets its target by the wall clock. On a machine that is busy with other work the
processor time says what the wall clock would have shown on an idle one; it is stated beside.
Targets are printed, not asserted, since machines differ; only what passes five times its target
fails.
"""

from dataclasses import dataclass, field

from tests.bench.timing import Timing

GROSS = 5.0
"""A figure beyond this multiple of its target is a regression on any machine."""


@dataclass
class Ledger:
    """Figures of the report, in the order of the benchmarks."""

    lines: list[str] = field(default_factory=list)

    def time(self, what: str, timing: Timing, target_s: float) -> None:
        """Enter a time against its target."""
        if timing.wall_s <= target_s:
            verdict = "met"
        elif timing.cpu_s <= target_s:
            verdict = "met in processor time"
        else:
            verdict = "missed"
        self._enter(what, seconds(timing.wall_s), f"cpu {seconds(timing.cpu_s)}",
                    seconds(target_s), verdict)
        assert min(timing.wall_s, timing.cpu_s) <= GROSS * target_s, what

    def memory(self, what: str, peak_mb: float, target_mb: float) -> None:
        """Enter a peak of resident memory against its target."""
        verdict = "met" if peak_mb <= target_mb else "missed"
        self._enter(what, f"{peak_mb:.0f} MB", "", f"{target_mb:.0f} MB", verdict)
        assert peak_mb <= GROSS * target_mb, what

    def share(self, what: str, share: float, target: float) -> None:
        """Enter a share against the least that is wanted."""
        verdict = "met" if share >= target else "missed"
        self._enter(what, f"{share:.2%}", "", f"{target:.2%}", verdict)

    def size(self, what: str, size_kb: float, target_kb: float) -> None:
        """Enter the size of a file, the same on any machine."""
        self._enter(what, f"{size_kb:.0f} kB", "", f"{target_kb:.0f} kB",
                    "met" if size_kb <= target_kb else "missed")
        assert size_kb <= target_kb, what

    def ratio(self, mine: Timing, reference: Timing, named: str) -> None:
        """Enter how a reference of the same run compares, in processor time."""
        times = reference.cpu_s / mine.cpu_s
        self.lines.append(f"    {named}: {times:.3g} times that (cpu {seconds(reference.cpu_s)})")

    def _enter(self, what: str, wall: str, cpu: str, target: str, verdict: str) -> None:
        self.lines.append(f"{what:<54} {wall:>8}  {cpu:<12} target {target:>7}  {verdict}")


def seconds(value: float) -> str:
    """A time with three digits and the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value / 1e-6:.3g} us"
