"""Settings of the load generator, importable without its libraries."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ramsis.errors import InvalidValueError, check_known, check_positive, install
from ramsis.reprs import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TENSORS = ("auto", "binary", "json")
"""How tensors go: as bytes both ways, as JSON both ways, or only requests as bytes, *auto*, if the
server says that it takes them."""


@dataclass(frozen=True)
class LoadSettings:
    """Settings of the load generator."""

    slo_ms: NDArray[np.float64]  # deadline of each request after its arrival, shape (n,)
    send_deadline: bool = True  # whether requests state their deadline
    timeout_s: float = 30.0  # time after which an unanswered request fails, > 0
    tensors: str = "auto"  # one of :data:`TENSORS`

    def __post_init__(self) -> None:
        check_positive(timeout_s=self.timeout_s)
        check_known("not a way of sending", self.tensors, TENSORS, "tensors")


def model_url(url: str, model: str | None) -> str:
    """Return the URL of a model, from a server's URL and a model name, or check a full URL.

    >>> model_url("http://localhost:8000", "digits")
    'http://localhost:8000/v2/models/digits'
    """
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        is_valid = False
    if not is_valid:
        raise InvalidValueError("not the URL of a server", where="URL", value=url,
                                allowed="http://HOST:PORT")
    bare = url.rstrip("/").removesuffix("/infer")
    if "/v2/models/" in bare:
        return bare
    if model is None:
        raise InvalidValueError("no model is named", where="--model",
                                allowed="a name, or URL/v2/models/NAME")
    return f"{bare.removesuffix('/v2')}/v2/models/{model}"


def libraries() -> None:
    """Raise an error if the libraries of the extra are not installed."""
    for name in ("httptools", "orjson"):
        try:
            importlib.import_module(name)
        except ImportError:
            raise InvalidValueError(f"generating load needs {name}, which is not installed",
                                    where="load", allowed=install("serve")) from None
