"""Generator of a custom batching library for Triton Inference Server, for models in its backends.

Triton's scheduler owns the queue and its order: a library gets one request after the other, and
decides whether it joins the batch. So it implements :class:`ramsis.runtime.sized.ArrivalBatch`,
the rule for batches in order of arrival, with the times of a policy for requests with a size.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

from ramsis.errors import InvalidValueError, OutputError
from ramsis.files import make_folder, write_atomic
from ramsis.runtime.sized import SizedTables
from ramsis.serving.export.codegen.c import sized_header
from ramsis.serving.export.codegen.tables import quoted, real, template

LIMIT = 0.25
"""Longest batch, as a share of the SLO: besides its own a request may wait for two batches that
Triton has formed before, as it forms them while an instance is busy."""
_SOURCE, _LIBRARY, _CONFIG = "batching.c", "batching.so", "batching.pbtxt"
_PARAMETER = "parameters."
_COMPILE = ("cc", "-std=c99", "-O2", "-shared", "-fPIC", "-ffp-contract=off")


def batching_source(tables: SizedTables, size: str, limit_ms: float | None = None) -> str:
    """Generate the library's source in C.

    Parameters
    ----------
    tables : SizedTables
        Tables of a policy with one model.
    size : str
        ``INPUT:AXIS``, the length of an input along an axis, 0 being the batch's, or
        ``parameters.NAME``.
    limit_ms : float, optional
        Longest service time of a batch, by default the share :data:`LIMIT` of the SLO.

    Raises
    ------
    InvalidValueError
        Several models, an invalid source of the size, or an invalid limit.
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

    Returns
    -------
    Path or None
        The library; None without a C compiler.
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
    return " ".join([*_COMPILE, "-o", str(folder / _LIBRARY), str(folder / _SOURCE), "-lm"])


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
