"""Generator of files for Triton Inference Server, which it does not require.

They are a model repository, or a custom batching library for models in Triton's own back ends.
With the library Triton's scheduler owns the queue and its order: the library gets one request
after the other, and decides whether it joins the batch. So it implements
:class:`ramsis.runtime.sized.ArrivalBatch`, the rule for batches in order of arrival, with the
times of a policy for requests with a size.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ramsis.errors import InputFileError, InvalidValueError, OutputError
from ramsis.files import make_folder, write_atomic
from ramsis.plugins import is_trusted
from ramsis.runtime.sized import SizedTables
from ramsis.serving.export.codegen.sources import sized_header
from ramsis.serving.export.codegen.tables import quoted, real, template
from ramsis.serving.tensors import MOST_QUERIES, TensorSpec
from ramsis.serving.variants import VariantsFile

LIMIT = 0.25
"""Longest batch, as a share of the SLO: besides its own a request may wait for two batches that
Triton has formed before, as it forms them while an instance is busy."""
_SOURCE, _LIBRARY, _CONFIG = "batching.c", "batching.so", "batching.pbtxt"
_PARAMETER = "parameters."
_COMPILE = ("cc", "-std=c99", "-O2", "-shared", "-fPIC", "-ffp-contract=off")

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

    ``inputs`` and ``outputs`` are the tensors of all variants; further outputs describe an answer.
    The dispatcher subtracts ``overhead_ms`` from every slack, measured by default.
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


def batching_source(tables: SizedTables, size: str, limit_ms: float | None = None) -> str:
    """Generate the library's source in C, by the tables of a policy with one model.

    ``size`` is ``INPUT:AXIS``, the length of an input along an axis, 0 being the batch's, or
    ``parameters.NAME``; ``limit_ms`` the longest service time of a batch, by default the share
    :data:`LIMIT` of the SLO. Several models, another source of the size, or an invalid limit are
    an InvalidValueError.
    """
    if len(tables.models) > 1:
        raise InvalidValueError("Triton batches for one model at a time", where="--batching",
                                value=", ".join(tables.models),
                                allowed="a policy of one model; `ramsis serve --upstream` chooses "
                                "among several")
    limit_ms = LIMIT * tables.slo_ms if limit_ms is None else limit_ms
    if not 0.0 < limit_ms <= tables.slo_ms:
        raise InvalidValueError("not a time of a batch", where="--limit-ms", value=limit_ms,
                                allowed=f"above 0, at most the SLO of {tables.slo_ms:g} ms")
    axis = re.fullmatch(r"(.+):([1-9])", size)
    parameter = size.removeprefix(_PARAMETER) if size.startswith(_PARAMETER) else ""
    if not axis and not parameter:
        raise InvalidValueError("no source of the size of a request", where="--size", value=size,
                                allowed="INPUT:AXIS, such as input_ids:1, or parameters.NAME")
    written = template(
        "batching.c", limit_ms=real(limit_ms), axis=axis[2] if axis and not parameter else 1,
        input=quoted(axis[1]) if axis and not parameter else '""',
        parameter=quoted(parameter))
    return written.replace("@tables", sized_header([(1.0, tables)]), 1)


def write_batching(
    folder: Path, tables: SizedTables, size: str, limit_ms: float | None = None
) -> Path | None:
    """Write source, compiled library and lines for ``config.pbtxt`` to a folder.

    Return the library; None without a C compiler.
    """
    source = batching_source(tables, size, limit_ms)
    make_folder(folder)
    write_atomic(folder / _SOURCE, source)
    library = (folder / _LIBRARY).resolve()
    write_atomic(folder / _CONFIG, _configuration(tables, library, limit_ms))
    if shutil.which(_COMPILE[0]) is None:
        return None
    ran = subprocess.run([*_COMPILE, "-o", library, folder / _SOURCE, "-lm"],
                         capture_output=True, text=True)
    if ran.returncode:
        raise OutputError(f"the compiler fails: {ran.stderr.strip().splitlines()[-1]}",
                          where=str(folder / _SOURCE))
    return library


def compile_command(folder: Path) -> str:
    """Return the command that compiles the source of :func:`write_batching`."""
    return shlex.join([*_COMPILE, "-o", str(folder / _LIBRARY), str(folder / _SOURCE), "-lm"])


def _configuration(tables: SizedTables, library: Path, limit_ms: float | None) -> str:
    limit_ms = LIMIT * tables.slo_ms if limit_ms is None else limit_ms
    return f"""# Add this to config.pbtxt; max_batch_size is {len(tables.times_ms[0][0])} or more.
dynamic_batching {{
  max_queue_delay_microseconds: 0
  default_queue_policy {{
    timeout_action: REJECT
    default_timeout_microseconds: {max(1, round(1000.0 * (tables.slo_ms - limit_ms)))}
  }}
}}
parameters {{
  key: "TRITON_BATCH_STRATEGY_PATH"
  value: {{ string_value: {json.dumps(str(library))} }}
}}
"""
