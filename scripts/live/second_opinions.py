"""A live run of second opinions: what a policy promises, and what clients get on real labels.

    python -m pip install -e '.[measure,serve]' scikit-learn skl2onnx
    PYTHONPATH=scripts python -m live.second_opinions --rows docs/results/live-cascades.csv

Trains two small networks on distorted digits (those of scripts/measure_digits.py, at 16 by 16
pixels) and writes them as ONNX files. Accuracies and confidences come from copies of the held-out
digits; the load sends other copies of these. Real models run for each batch; where the machine is
shared with others their times would be noise, so each batch is then made to take a time that is
stated (``LAW_MS``), by sleeping for what is left of it. Service times are measured through the
workers of a server, and what a request takes for the client beyond the server's time in a run
before, both on the machine as it is. Each row is a Poisson load at a share of the capacity, served
by ``ramsis serve``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from study import markdown, parser_of, say, write_rows

from live.fleet import Live, Load, live_run, longer, slower_ms
from ramsis.plugins import trust
from ramsis.policy import Policy
from ramsis.profiles import BatchProfile, ModelProfile, ProfileSet
from ramsis.profiles.measure.labels import MAX, sureness
from ramsis.synthesis import SynthesisSettings, generate_policy

WORKERS, SLO_MS, BATCHES = 2, 600.0, (1, 2, 3, 4, 6, 8)
SHARES, DURATION_S = (0.5, 0.65, 0.8, 0.95), 60.0
HIDDEN: dict[str, tuple[int, ...]] = {"mlp-24": (24,), "mlp-256": (256, 64)}
LAW_MS = {"mlp-24": (20.0, 10.0), "mlp-256": (60.0, 40.0)}
"""Time of a batch: a first part, and one for each image."""
LIVE_SEED = 100  # of the copies that are sent, others than those for confidences
ROUNDS, CALIBRATION_S = 40, 20.0
FUNCTIONS = '''"""Networks whose batches take a time that is stated."""

import time
from pathlib import Path

import onnxruntime


def _slowed(name, first_ms, each_ms):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(Path(__file__).parent / f"{{name}}.onnx"), options,
                                           providers=["CPUExecutionProvider"])
    entry = session.get_inputs()[0].name

    def run(X):
        ends_s = time.perf_counter() + (first_ms + each_ms * len(X)) / 1000
        label, scores = session.run(None, {{entry: X}})
        time.sleep(max(ends_s - time.perf_counter(), 0.0))
        return {{"label": label, "scores": scores}}

    return run


{functions}
'''


class Prepared:
    """Networks, their answers to labelled samples, and what a server needs."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.data = folder, folder / "live.npz"
        copies = folder / "copies.npz"
        if not all((folder / f"{name}.onnx").exists() for name in HIDDEN):
            _train(folder)
        if not (copies.exists() and self.data.exists()):
            _draw_copies(copies, self.data)
        identifiers = {name: name.replace("-", "_") for name in HIDDEN}
        (folder / "networks.py").write_text(FUNCTIONS.format(functions="\n".join(
            f'{identifiers[name]} = _slowed("{name}", {first}, {each})'
            for name, (first, each) in LAW_MS.items())))
        self.code = [f"networks:{identifier}" for identifier in identifiers.values()]
        self.variants = folder / "variants.toml"
        self.variants.write_text(f'name = "digits"\nconfidence = "{MAX}"\n' + "".join(
            f'\n[[variants]]\nname = "{name}"\nbackend = "callable"\nmodel = "{code}"\n'
            for name, code in zip(HIDDEN, self.code, strict=True))
            + '\n[[inputs]]\nname = "X"\ndatatype = "FP32"\nshape = [256]\n')
        trust(*self.code)
        arrays = np.load(copies)
        self.groups = arrays["digit"]
        self.samples = {name: _answered(folder / f"{name}.onnx", arrays["X"], arrays["label"])
                        for name in HIDDEN}

    def profile(self) -> ProfileSet:
        """Measure service times through workers, and add accuracies and confidences."""
        from ramsis.serving.replanning.calibration import CalibrationSettings, measure_service
        from ramsis.serving.variants import read_variants

        took = asyncio.run(measure_service(read_variants(self.variants), CalibrationSettings(
            BATCHES, samples=ROUNDS, seconds=120.0, workers=WORKERS), pin=False))
        models = tuple(ModelProfile(name, float(self.samples[name][0].mean()), tuple(
            BatchProfile.from_samples(batch, took[v, batch]) for batch in BATCHES))
            for v, name in enumerate(HIDDEN))
        return ProfileSet("networks", models).with_confidences(self.samples, groups=self.groups)


def _train(folder: Path) -> None:
    """Fit the networks and write them as ONNX files."""
    import skl2onnx
    from measure_digits import make_data
    from sklearn.neural_network import MLPClassifier

    data = make_data()
    images = _small(data.train)
    for name, sizes in HIDDEN.items():
        say(f"training {name}")
        network = MLPClassifier(sizes, max_iter=40, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            network.fit(images, data.train_labels)
            graph = skl2onnx.to_onnx(network, images[:1], options={"zipmap": False})
        (folder / f"{name}.onnx").write_bytes(graph.SerializeToString())


def _draw_copies(copies: Path, live: Path) -> None:
    """Write copies of the held-out digits for confidences, and others to send."""
    from measure_digits import CONFIDENCE_COPIES, distort, make_copies, split_digits

    drawn = make_copies()
    np.savez(copies, X=_small(drawn.images), label=drawn.labels, digit=drawn.digits)
    _, test, _, labels = split_digits()
    images = distort(np.repeat(test, CONFIDENCE_COPIES, axis=0), np.random.default_rng(LIVE_SEED))
    np.savez(live, X=_small(images), label=np.repeat(labels, CONFIDENCE_COPIES))


def _small(images: NDArray[np.float32]) -> NDArray[np.float32]:
    """Images of 64 by 64 pixels at 16 by 16, flattened."""
    small: NDArray[np.float32] = images.reshape(-1, 16, 4, 16, 4).mean(axis=(2, 4))
    return small.reshape(len(images), -1).astype(np.float32)


def _answered(
    file: Path, images: NDArray[np.float32], labels: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether a network is right about each image, and how sure it is, as the server reads it."""
    from measure_digits import open_session

    session = open_session(file.read_bytes())
    entry = session.get_inputs()[0].name
    answers = [session.run(None, {entry: part}) for part in np.array_split(images, 100)]
    right = np.concatenate([label for label, _ in answers]) == labels
    scores = np.concatenate([part for _, part in answers]).astype(float)
    return right, np.asarray(sureness(scores, MAX))


def made(profile: ProfileSet, load_qps: float, network_ms: float) -> Policy:
    """Return the policy for a load, with time left for the network."""
    return generate_policy(profile, load_qps, SynthesisSettings(
        slo_ms=SLO_MS - network_ms, workers=WORKERS, dispatch="central-queue", cascades=True,
        service="distribution", max_queue=BATCHES[-1]))


def row_of(
    policy: Policy, profile: ProfileSet, share: float, live: Live, network_ms: float, seed: int,
    load_average: float,
) -> dict[str, Any]:
    """Return what a policy promises beside what a run delivered."""
    client = live.client
    earned = np.where(client.in_time, np.nan_to_num(client.correct), 0.0)
    alone, rates = policy.expectations, policy.rates
    ratio = longer(profile, [live.server])
    return {
        "load_share": share, "load_qps": round(policy.load_qps, 3), "requests": len(client),
        "promised_effective_accuracy": rates.effective_accuracy,
        "live_effective_accuracy": float(earned.mean()),
        "live_standard_error": float(earned.std() / np.sqrt(len(earned))),
        "promised_one_model": alone.effective_accuracy,
        "promised_in_time": 1.0 - rates.violation_rate,
        "live_in_time": float(client.in_time.mean()),
        "promised_second_opinions": (policy.cascade.promise.second_opinions
                                     if policy.cascade is not None else 0.0),
        "live_second_opinions": live.row["second_opinions"],
        "times_longer": max(ratio.values()), "network_ms": round(network_ms, 3),
        "load_average": load_average, "seed": seed,
    }


def rows(prepared: Prepared, shares: Sequence[float], duration_s: float, runs: int) -> Any:
    """Yield a row for each share of the capacity and run."""
    say("measuring service times")
    profile = prepared.profile()
    for model in profile.models:
        say(f"{model.name}: accuracy {model.accuracy:.4f}, p95 "
            + ", ".join(f"{batch.p95_ms:.1f}" for batch in model.batches) + " ms")
    capacity_qps = made(profile, 20.0, 0.0).expectations.capacity_qps
    assert capacity_qps is not None

    def run(policy: Policy, seconds: float, seed: int, network_ms: float) -> Live:
        load = Load(policy.load_qps, seconds, seed, SLO_MS)
        return live_run(policy, prepared.variants, prepared.data, load, overhead_ms=network_ms,
                        code=prepared.code)

    network_ms = slower_ms(run(made(profile, 0.65 * capacity_qps, 0.0), CALIBRATION_S, 7, 0.0))
    say(f"capacity {capacity_qps:.0f} requests/s; {network_ms:.1f} ms more for the client")
    for share in shares:
        policy = made(profile, share * capacity_qps, network_ms)
        for seed in range(runs):
            live = run(policy, duration_s, seed, network_ms)
            yield row_of(policy, profile, share, live, network_ms, seed, os.getloadavg()[0])


def table_of(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the means over the runs at each load."""
    means = kept.groupby("load_share").mean()
    total = kept.groupby("load_share")["requests"].sum()
    return markdown(
        ["load, of the capacity", "requests/s", "requests",
         "effective accuracy without second opinions, promised", "with, promised", "with, live",
         "in time, promised", "live", "second opinions, promised", "live", "times longer",
         "load average"],
        [[f"{share:.0%}", f"{row['load_qps']:.0f}", f"{total.to_dict()[share]:,}",
          f"{row['promised_one_model']:.4f}", f"{row['promised_effective_accuracy']:.4f}",
          f"{row['live_effective_accuracy']:.4f}",
          f"{row['promised_in_time']:.2%}", f"{row['live_in_time']:.2%}",
          f"{row['promised_second_opinions']:.1%}", f"{row['live_second_opinions']:.1%}",
          f"{row['times_longer']:.2f}", f"{row['load_average']:.1f}"]
         for share, row in means.iterrows()])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", type=Path, required=True, help="file of rows")
    parser.add_argument("--models", type=Path, help="folder that keeps the networks; runs them")
    parser.add_argument("--shares", type=lambda text: [float(one) for one in text.split(",")],
                        default=SHARES, help="of the capacity, as 0.5,0.8")
    parser.add_argument("--duration-s", type=float, default=DURATION_S, help="of a run")
    parser.add_argument("--runs", type=int, default=1, help="at each load")
    chosen = parser.parse_args(arguments)
    if chosen.models is not None:
        prepared = Prepared(chosen.models)
        write_rows(chosen.rows, rows(prepared, chosen.shares, chosen.duration_s, chosen.runs))
    print(table_of(pd.read_csv(chosen.rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
