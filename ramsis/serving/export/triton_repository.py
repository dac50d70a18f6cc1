"""Generator of a model repository for Triton Inference Server; does not require Triton."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.files import write_atomic
from ramsis.plugins import is_trusted
from ramsis.serving.tensors import MOST_QUERIES, TensorSpec
from ramsis.serving.variants import VariantsFile

_NAME = re.compile(r"[A-Za-z0-9_][-A-Za-z0-9_.]*")
_MARK = '"""Serves by policies; written by `ramsis export triton`."""\n'
_MODEL = _MARK + '''
import os
import sys

# The interpreter in Triton leaves this variable out.
sys.path.extend(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))

from ramsis.serving.triton import TritonPythonModel  # noqa: E402

__all__ = ["TritonPythonModel"]
'''
_FILES = {"config.pbtxt", "1", "1/model.py"}


def configuration(
    variants: VariantsFile, policies: Path, inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec], overhead_ms: float | None = None,
) -> str:
    """Generate the ``config.pbtxt`` of the model.

    Parameters
    ----------
    inputs, outputs : sequence of TensorSpec
        Tensors of all variants. Further outputs describe an answer.
    overhead_ms : float, optional
        Time that the dispatcher subtracts from every slack; measured by default.
    """
    where = str(variants.path)
    if not _NAME.fullmatch(variants.name):
        raise InputFileError("not a name of a model in Triton", where=f"{where}: name",
                             value=variants.name, allowed="letters, digits, _, - and .")
    texts = variants.described_by
    for spec in outputs:
        if spec.name in texts:
            raise InputFileError(f"the output that is to name the {spec.name}", where=where,
                                 value=spec.name, allowed="another name")
    for name in (variant.name for variant in variants.variants):
        if "," in name:
            raise InputFileError("a name with a comma", where=f"{where}: variants", value=name,
                                 allowed="a name without")
    code = [variant.model for variant in variants.variants
            if variant.backend == "callable" and is_trusted(variant.model)]
    parameters = {"policies": str(policies.resolve()), "variants": str(variants.path.resolve()),
                  "code": " ".join(code),
                  "overhead_ms": "" if overhead_ms is None else f"{overhead_ms!r}"}
    input_lines = "".join(f"  {_tensor(spec)},\n" for spec in inputs).removesuffix(",\n")
    output_lines = ",\n".join([
        *(f"  {_tensor(spec)}" for spec in outputs),
        *(f'  {{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}' for name in texts)])
    settings = "".join(f"parameters {{ key: {json.dumps(name)} value: {{ string_value: "
                       f"{json.dumps(value, ensure_ascii=False)} }} }}\n"
                       for name, value in parameters.items() if value)
    return f"""name: "{variants.name}"
backend: "python"
max_batch_size: {MOST_QUERIES}
input [
{input_lines}
]
output [
{output_lines}
]

# The policies form the batches: requests are handed over at once, and one instance holds them all.
# Models run on the device that the variants file states.
instance_group [ {{ kind: KIND_CPU count: 1 }} ]
dynamic_batching {{ max_queue_delay_microseconds: 0 }}

# Paths are absolute, or start at the folder of model.py.
{settings}"""


def _tensor(spec: TensorSpec) -> str:
    """Return the entry of a tensor; Triton requires a dimension besides the batch's."""
    dims = ", ".join(map(str, spec.shape or (1,)))
    return (f"{{ name: {json.dumps(spec.name, ensure_ascii=False)} "
            f"data_type: TYPE_{spec.datatype} dims: [ {dims} ] }}")


def write_repository(folder: Path, name: str, config: str) -> None:
    """Write a model into a model repository; replace only models written by this module."""
    target = folder / name
    if target.exists() and not _is_ours(target):
        raise InvalidValueError("a model that this command has not written", where="--out",
                                value=str(target), allowed="another folder")
    try:
        # A rename cannot replace a folder that holds files, so the old one first goes into the new
        # one.
        aside = folder / f".{name}-{os.getpid()}"
        try:
            (aside / "1").mkdir(parents=True)
            write_atomic(aside / "1" / "model.py", _MODEL)
            write_atomic(aside / "config.pbtxt", config)
            if target.exists():
                target.rename(aside / "before")
            aside.rename(target)
            shutil.rmtree(target / "before", ignore_errors=True)
        finally:
            if (aside / "before").exists():
                (aside / "before").rename(target)
            shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise OutputError(f"cannot write ({error.strerror})", where=str(target)) from None


def _is_ours(target: Path) -> bool:
    """Return whether a folder has only files of this module, and perhaps Python's cache."""
    names = {str(path.relative_to(target)) for path in target.rglob("*")
             if "__pycache__" not in path.parts}
    try:
        return names == _FILES and (
            target / "1" / "model.py").read_text().startswith(_MARK)
    except (OSError, UnicodeDecodeError):
        return False
