"""What policies for requests with a size promise, beside simulations of other requests.

python scripts/sized_promises.py

Each setting is written as soon as it has ended; those that the file has are not run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sized import CELLS
from study import keep_rows

from ramsis.sim import ConstantLoad
from ramsis.sized.policy import generate_sized
from ramsis.sized.simulate import simulate_sized

RUNS, REQUESTS, SEED = 12, 100_000, 900


class Setting(NamedTuple):
    """What a policy is made for."""

    cell: str
    load_qps: float
    workers: int = 1
    arrivals: str = "poisson"
    min_in_time: float | None = None  # of each class


SETTINGS = (
    Setting("cpu", 90.0), Setting("cpu", 120.0), Setting("gpu", 4800.0),
    Setting("flash", 7200.0), Setting("gpu", 16_000.0, workers=4),
    Setting("gpu", 4800.0, min_in_time=0.5), Setting("gpu", 3600.0, arrivals="renewal:2"),
    Setting("cpu", 90.0, arrivals="mmpp:ratio=2,burst-ms=500,share=0.2"))


def rows_of(**terms: Any) -> Iterator[dict[str, Any]]:
    """Yield a row for all requests and for each size class of a setting."""
    setting = Setting(**terms)
    cell = CELLS[setting.cell]
    problem = cell.problem(workers=setting.workers)
    policy = generate_sized(problem, cell.profile(), setting.load_qps, arrivals=setting.arrivals,
                            min_in_time_by_class=setting.min_in_time)
    load = ConstantLoad(setting.load_qps, 1000.0 * REQUESTS / setting.load_qps, setting.arrivals)
    result = simulate_sized(problem, policy.scheduler, load, seeds=range(SEED, SEED + RUNS))
    expected = policy.expectations
    figures = [("all", 1.0 - expected["violation_rate"], expected["violation_rate_half_width"],
                result.total)]
    figures += [("–".join(map(str, entry["sizes"])), entry["in_time_rate"],
                 entry["in_time_rate_half_width"], of_class)
                for entry, of_class in zip(expected["by_class"], result.by_class, strict=True)]
    for sizes, promised, half_width, simulated in figures:
        late = simulated.estimate("violation_rate")
        yield {**setting._asdict(), "sizes": sizes, "promised": promised,
               "promised_half_width": half_width, "simulated": 1.0 - late.mean,
               "simulated_half_width": late.half_width,
               "decides": "replanned-dp" if policy.tables.plan else "rule"}


if __name__ == "__main__":
    keep_rows(__doc__, "sized-promises", [setting._asdict() for setting in SETTINGS], rows_of)
