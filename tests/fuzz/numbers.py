"""Whole commands under random numbers: ``python -m tests.fuzz.numbers --count 300 --seed 0``.

A setting is drawn: profile, SLO, workers, load (whole, decimal, tiny, huge), dispatch, service
times, rules. Then generate, validate, verify, simulate, analyze and report run one after the other
in this process. What must hold: no traceback, one line for what is refused, a promise that the
simulation of other arrivals keeps, nothing above the bound, and a central queue no worse than
queues of single workers, these no worse than the greedy scheduler, but for 0.001.
"""

import argparse
import contextlib
import io
import json
import math
import random
import sys
import tempfile
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ramsis.cli.main import main as ramsis

_PROFILES: Mapping[str, tuple[float, float, float]] = {
    "digits-cpu": (15.0, 60.0, 900.0), "text-cpu": (40.0, 300.0, 60.0),
    "image-cpu": (120.0, 400.0, 12.0)}
"""Range of the SLO in ms, and requests/s that a worker serves with ease."""

_REFUSED = (2, 3, 4)
_REQUESTS = 60_000.0
_NEAR = {  # share of the simulated value, and least difference, that a figure may be off by
    "effective_accuracy": (0.0, 0.004), "violation_rate": (0.25, 0.003),
    "utilisation": (0.03, 0.01), "response_mean_ms": (0.05, 0.2),
    "response_p50_ms": (0.06, 0.2), "response_p99_ms": (0.1, 0.3)}
_WORSE = 0.001
_BY_CHANCE = 0.003  # arrivals that are drawn may be fewer than on average


class Setting(NamedTuple):
    """A draw: what ``generate`` and ``simulate`` share, and what only ``generate`` takes."""

    load: str
    shared: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def words(self) -> str:
        """As one would type it."""
        return " ".join(("ramsis generate", *self.shared, *self.options))


def setting_of(seed: int, *, quick: bool = False) -> Setting:
    """The setting of a number; a quick one has a coarse grid and few workers."""
    rng = random.Random(seed)
    profile, (low, high, rate) = rng.choice(list(_PROFILES.items()))
    workers = rng.choice([1, 2, 3, 4] if quick else [1, 2, 3, 4, 7, 12, 20, 60])
    load = workers * rate * math.exp(rng.uniform(-2.5, 0.6))
    if rng.random() < 0.15:
        load = rng.choice([0.01, 0.3, 40.0]) * load
    text = str(max(round(load), 1)) if rng.random() < 0.6 else f"{load:.3f}"
    shared = ("--profiles", profile, "--slo-ms", f"{rng.uniform(low, high):.4g}",
              "--workers", str(workers), "--load", text)
    dispatch = rng.choice(["central-queue", "central-queue", "round-robin", "shortest-queue"])
    options = ["--dispatch", dispatch]
    if quick or rng.random() < 0.4:
        kinds = ["p95", "p99", "mean"] if quick else ["p95", "p99", "mean", "distribution"]
        options += ["--service", rng.choice(kinds)]
    if rng.random() < 0.3:
        options += ["--headroom", rng.choice(["0", "0.02", "0.1"])]
    if rng.random() < 0.3:
        options += ["--violation-price", rng.choice(["0", "0.37", "3"])]
    if dispatch != "central-queue":
        if rng.random() < 0.3:
            options += ["--late", rng.choice(["serve", "drop"])]
        if rng.random() < 0.2:
            options += ["--arrivals", rng.choice(
                ["negative-binomial:2.7", "mmpp:ratio=3,burst-ms=330,share=0.2"]),
                "--max-queue", "6"]
        elif rng.random() < 0.2:
            options += ["--batching", "variable"]
        if quick or "mmpp" in " ".join(options):
            options += ["--grid", "fixed:11"]
    if "--max-queue" not in options and (quick or rng.random() < 0.3):
        options += ["--max-queue", rng.choice(["5", "7"] if quick else ["5", "9", "13"])]
    return Setting(text, shared, tuple(options))


def findings(setting: Setting, folder: Path) -> list[str]:
    """What does not hold for a setting; files go into the folder, which is empty."""
    out, found = folder / "set", list[str]()
    code, text, errors = _run("generate", *setting.shared, *setting.options, "--out", out,
                              "--json")
    if code in _REFUSED:
        lines = errors.strip().splitlines()
        return [] if len(lines) <= 3 else [f"generate: refused in {len(lines)} lines: {lines[0]}"]
    if code != 0:
        return [f"generate: exit code {code}: {errors.strip().splitlines()[-1:]}"]
    promise = _figures(next(one for one in out.glob("*.json") if one.name != "manifest.json"))
    if json.loads((out / "manifest.json").read_text())["levels"][0]["load_qps"] != float(
            setting.load):
        found.append("the level is for another load than was asked for")
    played = folder / "played.json"
    duration_s = min(600.0, _REQUESTS / float(setting.load))
    arrivals = [word for i, word in enumerate(setting.options)
                if "--arrivals" in (word, setting.options[i - 1])]
    for command in (
        ["validate", out], ["verify", out], ["analyze", out, "--json"],
        ["simulate", *setting.shared, *arrivals, "--policy", out, "--scheduler", "greedy",
         "--duration-s", f"{duration_s:.4g}", "--json"],
        ["report", out, "--out", folder / "report.html"],
    ):
        code, text, errors = _run(*command)
        if code != 0:
            last = (text + errors).strip().splitlines()[-4:]
            found.append(f"{command[0]}: exit code {code}: {last}")
        elif command[0] == "simulate":
            played.write_text(text)
    if played.exists():
        found += _compared(setting, promise, json.loads(played.read_text())["rows"])
    return found


def _figures(path: Path) -> dict[str, Any]:
    document = json.loads(path.read_text())
    return {**document["expectations"], "measured": "replay" in document,
            "widths": document.get("replay", {}).get("half_widths", {}),
            "price": document["violation_price"], "slower": document["late"] != "drop"}


def _compared(
    setting: Setting, promise: Mapping[str, Any], rows: list[dict[str, Any]]
) -> list[str]:
    found = []
    ours, greedy = rows
    if promise["measured"] and not promise["slower"]:
        for name, (share, least) in _NEAR.items():
            stated, seen = promise.get(name), ours.get(name)
            if stated is None or seen is None:
                continue
            allowed = max(least, share * abs(seen)) + 2.0 * promise["widths"].get(name, 0.0)
            if abs(stated - seen) > allowed:
                found.append(f"{name}: stated {stated:.5g}, simulated {seen:.5g}")
    effective, bound = ours["effective_accuracy"], ours["upper_bound"]
    if bound is not None and effective > bound + _BY_CHANCE:
        found.append(f"above the bound: {effective} > {bound}")
    rules = {"--late", "--headroom", "--service", "--grid", "--max-queue", "--violation-price"}
    if not rules & set(setting.options) and "central-queue" in setting.options:
        gain, other = (row["effective_accuracy"] - row["violation_rate"] for row in (ours, greedy))
        if gain < other - _WORSE:
            found.append(f"below greedy: {gain:.5f} < {other:.5f}")
    return found


def _run(*words: Any) -> tuple[int, str, str]:
    """A command line in this process: code, output and errors; a traceback has the code 99."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            code = ramsis([str(word) for word in words])
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except Exception:
            traceback.print_exc()
            code = 99
    return int(code or 0), output.getvalue(), errors.getvalue()


def main() -> int:
    """Try the settings; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=300, help="number of settings")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    given = parser.parse_args()
    bad = 0
    for seed in range(given.seed, given.seed + given.count):
        setting = setting_of(seed)
        with tempfile.TemporaryDirectory(prefix="ramsis-numbers-") as folder:
            found = findings(setting, Path(folder))
        bad += bool(found)
        for one in found:
            print(f"--seed {seed}: {setting.words}: {one}", flush=True)
        if seed % 20 == 19:
            print(f"{seed + 1 - given.seed} settings, {bad} with findings", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
