"""Custom runtime for MLServer that serves by policies.

MLServer's own batching collects requests for a fixed time, without deadlines. This runtime is the
server of ``ramsis serve`` with MLServer's REST and gRPC as the front end: requests are queued and
batched by table and deadline, and run on its worker processes. So it has to be in MLServer's main
process: ``parallel_workers`` is 0.

A ``model-settings.json`` names it; paths are relative to that file::

    {"name": "digits", "implementation": "ramsis.serving.mlserver.PolicyRuntime",
     "parameters": {"uri": "policies", "extra": {"variants": "variants.toml"}}}
"""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import orjson
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.errors import MLServerError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, Parameters
from mlserver.utils import get_model_uri, to_absolute_path

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.plugins import trust
from ramsis.runtime.dispatcher import DispatchSettings
from ramsis.serving.calls import FailedError, OverloadedError
from ramsis.serving.policies import read_policies
from ramsis.serving.protocol import RequestLimits, parse_request
from ramsis.serving.server import Server, ServerSettings
from ramsis.serving.variants import read_variants

_EXTRA = ("variants", "code", "overhead_ms")


class PolicyRuntime(MLModel):
    """MLServer runtime of a model whose variants are chosen by policies.

    ``parameters.uri`` of its settings is a folder of policies, or a policy file. In
    ``parameters.extra`` are ``variants``, the file of the models to run; ``code``, the functions
    that it may name; and ``overhead_ms``, which is taken from every slack, and measured by
    default.
    """

    _server: Server | None = None

    async def load(self) -> bool:
        """Start the workers.

        Settings, policies or variants that cannot be used, and variants that do not load, are an
        InputFileError.
        """
        if multiprocessing.parent_process() is not None:
            raise InputFileError("the runtime has workers of its own",
                                 where="settings.json: parallel_workers", allowed="0")
        extra = self._extra()
        trust(*extra.get("code", ()))
        variants = read_variants(to_absolute_path(self.settings, extra["variants"]))
        overhead_ms = float(extra.get("overhead_ms", 0.0))
        server = self._server = Server(
            read_policies(await get_model_uri(self.settings)), variants,
            ServerSettings(dispatch=DispatchSettings(timer_ms=1.0, overhead_ms=overhead_ms),
                           measure_overhead="overhead_ms" not in extra))
        await server.start()
        pool, settings = server.pool, server.settings
        self._limits = RequestLimits(settings.slots, wait_ms=1000.0 * settings.max_wait_s,
                                     size=variants.max_size)
        self.inputs, self.outputs = ([MetadataTensor(**spec.metadata()) for spec in specs]
                                     for specs in (pool.inputs, pool.outputs))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer a request; one that cannot be in time gets 503, as by ``ramsis serve``."""
        server = self._server
        assert server is not None
        arrival_ms, pool = server.front.now_ms(), server.pool
        plain = payload.model_dump(exclude_none=True)
        headers = plain.get("parameters", {}).pop("headers", {})
        # Written again, so that the checks are those of a request over HTTP.
        try:
            request = parse_request(orjson.dumps(plain), None, headers.get("x-deadline-ms"),
                                    pool.inputs, pool.outputs, self._limits)
            answer = await server.infer(request, arrival_ms)
        except InvalidValueError as error:
            raise MLServerError(str(error), 400) from error
        except OverloadedError as error:
            raise MLServerError(str(error), 503) from error
        except FailedError as error:
            raise MLServerError(str(error), 500) from error
        return InferenceResponse(
            model_name=self.name, model_version=self.version, id=payload.id,
            parameters=Parameters(**answer.parameters),
            outputs=[NumpyCodec.encode_output(spec.name, answer.outputs[spec.name])
                     for spec in pool.outputs if spec.name in request.outputs])

    async def unload(self) -> bool:
        """Drain waiting requests, and end the workers."""
        if self._server is not None and self._server.ready:
            await self._server.stop()
        return True

    def _extra(self) -> dict[str, Any]:
        """Return the settings of this runtime, checked."""
        parameters = self.settings.parameters
        extra = dict(parameters.extra or {}) if parameters is not None else {}
        where = f"{Path(self.settings._source or 'model-settings.json')}: parameters.extra"
        unknown = sorted(set(extra) - set(_EXTRA))
        if unknown or "variants" not in extra:
            raise InputFileError("unknown or missing settings", where=where, value=sorted(extra),
                                 allowed="variants, and perhaps code, overhead_ms")
        code = extra.get("code", [])
        if not (isinstance(code, list) and all(isinstance(name, str) for name in code)):
            raise InputFileError("not a list of names", where=f"{where}: code", value=code,
                                 allowed='such as ["module:function"]')
        return extra
