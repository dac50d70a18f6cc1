"""Importer of ``clockwork``: the measurements beside each model of Clockwork's model zoo.

``model.measurements`` has, in the syntax of libconfig, ``weights = 8370000L;`` (the time to copy
the weights to the GPU) and ``b1 = …; b2 = …; … b16 = …;`` (the time of a batch), all in **ns**.
They become ``load_ms`` and one time for each batch size. The size of ``model.clockwork_params``
beside it, which holds the weights, becomes ``memory_mb``.

A last setting that ends neither in ``;`` nor with its line is cut off, and refused. The file does
not name the statistic of a time; the mean is assumed, so commands need ``--service mean``. There
is no accuracy. The model is named after the folder.

Source: Clockwork, ``src/clockwork/model/batched.cpp`` (the file) and ``worker.cpp`` (ns).
"""

from __future__ import annotations

import re

from ramsis.errors import InputFileError
from ramsis.profiles.importers.runs import Given, MeasuredRun, Source

_SETTING = re.compile(r"\s*(\w+)\s*[=:]\s*([^\s;,]+?)(?:LL?)?\s*[;,]?\s*")
_COMMENT = re.compile(r"(?:#|//)[^\n]*|/\*.*?\*/", re.S)
_SHORTEST_NS = 1000


def recognises(source: Source) -> bool:
    """Return whether a file has Clockwork's settings of a model."""
    return re.search(r"^\s*b1\s*[=:]\s*\d", source.text[:5000], re.M) is not None


def read(source: Source, given: Given) -> list[MeasuredRun]:
    """Read a file of Clockwork's model zoo: a run for each batch size."""
    values = _settings(source)
    weights = values.pop("weights", None)
    weights_file = source.path.with_suffix(".clockwork_params")
    memory_mb = weights_file.stat().st_size / 1e6 if weights_file.is_file() else None
    notes = ["Clockwork states one time for each batch size, taken as the mean: use --service "
             "mean, and its variation is unknown"]
    model = source.path.resolve().parent.name if source.path.stem == "model" else None
    return [
        MeasuredRun({"mean_ms": time_ns / 1e6}, None, int(name[1:]), model, tuple(notes),
                    weights / 1e6 if weights is not None else None, memory_mb or None)
        for name, time_ns in values.items()
    ]


def _settings(source: Source) -> dict[str, int]:
    """Read the times in ns by name, ``weights`` or ``bN``."""
    values: dict[str, int] = {}
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), source.text)
    if not text.endswith("\n") and not text.rstrip().endswith(";"):
        raise InputFileError("the last setting has no end, so the file is cut off",
                             where=source.where, value=text.rpartition("\n")[2].strip(),
                             allowed="bN = NS;")
    for number, line in enumerate(text.splitlines(), start=1):
        for part in re.split(r"(?<=;)", line):
            if not part.strip(" \t;"):
                continue
            where = f"{source.where}: line {number}"
            setting = _SETTING.fullmatch(part)
            if setting is None or not re.fullmatch(r"weights|b[1-9]\d{0,4}", setting[1]):
                raise InputFileError("not a setting of Clockwork", where=where, value=part.strip(),
                                     allowed="weights = NS; or bN = NS;")
            if setting[1] in values:
                raise InputFileError("appears twice", where=where, value=setting[1])
            if not re.fullmatch(r"\d{1,18}", setting[2]) or int(setting[2]) < _SHORTEST_NS:
                raise InputFileError("not a time in ns", where=f"{where}, {setting[1]}",
                                     value=setting[2],
                                     allowed=f"a whole number of {_SHORTEST_NS} or more")
            values[setting[1]] = int(setting[2])
    return values
