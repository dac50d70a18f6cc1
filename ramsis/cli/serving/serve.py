"""``ramsis serve``: a model server that follows policies."""

from __future__ import annotations

import asyncio
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import OUT_FILE, complete_files, require
from ramsis.cli.options.shared import variants_options
from ramsis.errors import InputFileError, InvalidValueError, check_positive

if TYPE_CHECKING:
    from ramsis.policy import Policy, PolicySet
    from ramsis.profiles import ProfileSet
    from ramsis.serving.server import Server
    from ramsis.serving.variants import VariantsFile
    from ramsis.sized.policy import SizedPolicy

_PROBES = 500
_LIBRARIES = "starlette uvicorn prometheus_client orjson"


_MORE = (
    "--slots", "--max-wait-s", "--batch-timeout-s", "--max-body-mb", "--max-json-mb",
    "--max-header-kb", "--header-timeout-s", "--request-timeout-s",
    "--max-connections", "--max-pending-mb", "--drain-s", "--worker-memory-mb",
    "--no-pin", "--max-workers", "--advise", "--peers", "--calibrate-seconds", "--process")
"""Options that only --help-all shows."""


@click.command("serve", cls=Command, more=_MORE)
@click.argument("policies", metavar="DIR|FILE", shell_complete=complete_files)
@partial(variants_options, required=False)
@click.option("--upstream", metavar="URL",
              help="Server that runs the models, such as a Triton, instead of --variants.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True,
              help="Port, or 0 for a free one.")
@click.option("--process", metavar="LABEL",
              help="Arrival process of the policies to use, if there are several.")
@click.option("--load", "load_qps", type=float, metavar="QPS",
              help="Load in requests/s, if known.  [default: monitored]")
@click.option("--overhead-ms", type=float,
              help="Overhead to subtract from every slack, besides service times.  [default: "
                   "measured by the server]")
@click.option("--retry", is_flag=True,
              help="Run the batch of a failed worker once more, instead of an error.")
@click.option("--request-log", type=OUT_FILE, metavar="FILE",
              help="CSV file for the outcome of each request.\nAn existing one is renamed.")
@click.option("--slots", type=click.IntRange(min=1), default=2048, show_default=True,
              help="Most samples that wait or run; new ones replace waiting samples with later "
                   "deadlines.")
@click.option("--max-wait-s", type=float, default=600.0, show_default=True,
              help="Longest deadline of a request.")
@click.option("--batch-timeout-s", type=float, default=10.0, show_default=True,
              help="Time limit of a batch, after which its worker is restarted.")
@click.option("--max-body-mb", type=float, default=16.0, show_default=True,
              help="Largest body of a request.")
@click.option("--max-json-mb", type=float, default=4.0, show_default=True,
              help="Largest JSON part of a body; tensors can follow as bytes.")
@click.option("--max-header-kb", type=float, default=32.0, show_default=True,
              help="Largest head of a request: its first line and headers.")
@click.option("--header-timeout-s", type=float, default=10.0, show_default=True,
              help="Time limit for the first line and headers of a request.")
@click.option("--request-timeout-s", type=float, default=30.0, show_default=True,
              help="Time limit for a whole request, and for a client to read its answer.")
@click.option("--max-connections", type=click.IntRange(min=1), default=2048, show_default=True,
              help="Most connections, or fewer if the system allows fewer files; beyond it, those "
                   "with the oldest incomplete request are closed.")
@click.option("--max-pending-mb", type=float, default=64.0, show_default=True,
              help="Size of all incomplete requests together; beyond it, connections with the "
                   "oldest of them are closed.")
@click.option("--drain-s", type=float, default=10.0, show_default=True,
              help="Time to answer requests under way when stopping.")
@click.option("--worker-memory-mb", type=float, help="Limit on a worker's address space.")
@click.option("--no-pin", is_flag=True,
              help="Do not pin workers and front end to cores.")
@click.option("--max-workers", type=click.IntRange(min=1), metavar="N",
              help="With a scaling policy: most workers.  [default: those of the scaling policy]")
@click.option("--advise", metavar="FILE",
              help="Scaling policy behind the metric ramsis_wanted_workers, for an external "
                   "autoscaler; this server's own workers stay.")
@click.option("--peers", metavar="HOST",
              help="With --advise: host name that resolves to all such servers, as a headless "
                   "Service.  [default: only this one]")
@click.option("--replan", metavar="OPTIONS",
              help="Recompute policies on drift with these options of `generate` (without --load "
                   "and --out), or auto: those of the manifest.")
@click.option("--calibrate", type=OUT_FILE, metavar="FILE",
              help="Measure service times through the server, write a profile, and exit.")
@click.option("--calibrate-seconds", type=float, default=60.0, show_default=True,
              help="Time for the measurement of service times.")
@click.option("--check", is_flag=True,
              help="Load and run each variant, report errors, and exit.")
def serve_command(policies: str, **given: Any) -> None:
    """Serve models over HTTP, by the policies of a folder or file.

    The protocol is the Open Inference Protocol (/v2/models/NAME/infer), with metrics at /metrics.
    There is one process for each worker that the policies are made for; with the scaling policy
    of `ramsis scale --out`, as many as the load needs. Stop the server with Ctrl-C or SIGTERM:
    requests under way are answered first; a second signal stops it at once.

    \b
    Examples:
      $ ramsis serve policies_out/example --variants variants.toml --check
      $ ramsis serve policies_out/example --upstream http://127.0.0.1:8001
    """
    require(_LIBRARIES, "serve", "serving", "serve")
    _serve(policies, given)


def _serve(policies: str, given: dict[str, Any]) -> None:
    from ramsis.profiles import load
    from ramsis.runtime.dispatcher import DispatchSettings
    from ramsis.runtime.scaling_table import ScalingTable
    from ramsis.serving.confidences import ConfidenceReader
    from ramsis.serving.connections import ConnectionLimits
    from ramsis.serving.event_loop import event_loop
    from ramsis.serving.http_server import HttpSettings, bound_socket, serve
    from ramsis.serving.policies import (
        check_served,
        largest_batch,
        read_policies,
        sized_policies,
    )
    from ramsis.serving.replanning.on_drift import (
        Replanning,
        options_of,
        profile_option,
        watch_policies,
    )
    from ramsis.serving.scaling.fleet import read_fleet, scaling_file
    from ramsis.serving.scaling.workers import Advice, OwnWorkers
    from ramsis.serving.server import Server, ServerSettings, check_sizes
    from ramsis.serving.workers.pool import checked

    sizes = {"max_body_mb": 2**20, "max_json_mb": 2**20, "max_header_kb": 2**10,
             "max_pending_mb": 2**20}
    check_positive(calibrate_seconds=given["calibrate_seconds"],
                   **{name: given[name] for name in sizes})
    body, json, head, pending = (int(given[name] * unit) or 1 for name, unit in sizes.items())
    http = HttpSettings(given["host"], given["port"], body, json, ConnectionLimits(
        given["max_connections"], head, given["header_timeout_s"], given["request_timeout_s"],
        max(pending, body + head)))
    # The policies: of a scaling policy, for requests with a size, or of a set.
    scaling = scaling_file(policies)
    _check_together(given, scaling)
    fleet = None if scaling is None else read_fleet(scaling, given["max_workers"])
    sized = None if fleet is not None else _sized(policies, given)
    if sized is not None:
        policy_set = sized_policies(sized.tables, sized.load_qps, [
            float(model["accuracy"]) for model in sized.document["models"]], sized.expectations)
    else:
        policy_set = (read_policies(policies) if fleet is None
                      else fleet.policies(fleet.table.least))
    models = _models(given, policy_set)
    variants = str(models.path)
    settings = ServerSettings(
        dispatch=DispatchSettings(overhead_ms=given["overhead_ms"] or 0.0, timer_ms=1.0,
                                  load_qps=given["load_qps"], process=given["process"]),
        slots=given["slots"], max_wait_s=given["max_wait_s"],
        timeout_s=given["batch_timeout_s"], retry=given["retry"],
        pin=not given["no_pin"] and models.run_here, memory_mb=given["worker_memory_mb"],
        drain_s=given["drain_s"], request_log=given["request_log"],
        measure_overhead=given["overhead_ms"] is None)
    names = [variant.name for variant in models.variants]
    if fleet is not None:
        fleet.check(names, variants)
    advice = None if given["advise"] is None else ScalingTable.load(given["advise"])
    if given["check"]:  # load the models, describe their tensors, and stop
        check_served(policy_set, names, None, variants)
        if sized is not None:
            check_sizes(models, sized.tables)
        largest = largest_batch(policy_set) if fleet is None else fleet.largest_batch
        with event_loop() as runner:
            inputs, outputs = runner.run(checked(models, largest))
        if models.confidence is not None:
            ConfidenceReader(models.confidence, outputs, variants)
        for what, specs in (("takes", inputs), ("gives", outputs)):
            for spec in specs:
                click.echo(f"{models.name} {what} {spec.name}: {spec.datatype} "
                           f"{['n', *spec.shape]}")
        return
    if given["calibrate"]:
        _calibrate(Server(policy_set, models, settings), given)
        return
    options: list[str] = []  # of `ramsis generate`, for replanning
    if given["replan"]:
        if not Path(policies).is_dir():
            raise InvalidValueError("not a folder, where policies can be added", where="--replan",
                                    value=policies, allowed="a folder with a manifest.json")
        options = (options_of(policies) if given["replan"] == "auto"
                   else _words(given["replan"]))
        load(options[profile_option(options)])
    listening = bound_socket(http)

    async def run() -> None:
        server = Server(policy_set, models, settings, fleet=fleet,
                        at_first=None if fleet is None else fleet.table.least,
                        tables=None if sized is None else sized.tables)
        if sized is not None:
            await serve(server, listening, http,
                        lambda url: click.echo(f"serving {models.name} at {url}"), [])
            return
        # Tasks beside the server. Replanning replaces the watch of the policies' folder, as it
        # exchanges policies itself.
        beside = [lambda: watch_policies(server, policies)] if fleet is None else [
            OwnWorkers(server, fleet.table).follow]
        if advice is not None:
            beside.append(Advice(server, advice, given["peers"]).follow)

        async def replan() -> None:
            replanning = Replanning(server, policies, options)
            try:
                await asyncio.Event().wait()
            finally:
                replanning.close()

        await serve(server, listening, http,
                    lambda url: click.echo(f"serving {models.name} at {url}"),
                    [replan, *beside[1:]] if options else beside)

    with event_loop() as runner:
        runner.run(run())


def _sized(policies: str, given: dict[str, Any]) -> SizedPolicy | None:
    """Return the policy for requests with a size, of the stated load; None for other policies."""
    from ramsis.sized.policy import for_load, is_sized, read_sized

    if not is_sized(policies):
        return None
    for option in ("--advise", "--replan", "--calibrate"):
        if given[option[2:]] is not None:
            raise InvalidValueError("not with a policy for requests with a size", where=option,
                                    value=given[option[2:]], allowed="other policies")
    return for_load(read_sized(policies), given["load_qps"])


def _models(given: dict[str, Any], policies: PolicySet[Policy]) -> VariantsFile:
    """Return the models of the variants file, or those of the policies on the upstream."""
    from ramsis.serving.policies import model_names
    from ramsis.serving.variants import read_variants, upstream_variants

    url, file = given["upstream"], given["variants"]
    if (url is None) == (file is None):
        raise click.UsageError("Give either --variants or --upstream.")
    return read_variants(file) if url is None else upstream_variants(url, model_names(policies))


def _check_together(given: dict[str, Any], scaling: Path | None) -> None:
    """Refuse options that exclude each other."""
    if scaling is not None:
        for option in ("--advise", "--replan", "--calibrate"):
            if given[option[2:]] is not None:
                raise InvalidValueError(
                    "not with a scaling policy", where=option, value=given[option[2:]],
                    allowed=f"policies of a folder, such as {scaling.parent}/tables/workers-1")
    for option, needed, there in (("--max-workers", "a scaling policy", scaling),
                                  ("--peers", "--advise", given["advise"])):
        value = given[option[2:].replace("-", "_")]
        if value is not None and there is None:
            raise InvalidValueError(f"needs {needed}", where=option, value=value)


def _words(text: str) -> list[str]:
    """Split the options of ``--replan`` into words."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise InvalidValueError(f"not options ({error})", where="--replan", value=text,
                                allowed="words as in a shell") from None


def _calibrate(server: Server, given: dict[str, Any]) -> None:
    """Measure the server and its models, and write the profile."""
    from ramsis.profiles import save
    from ramsis.profiles.measure import BATCHES
    from ramsis.serving.event_loop import event_loop
    from ramsis.serving.policies import largest_batch
    from ramsis.serving.replanning.calibration import (
        CalibrationSettings,
        measure_overhead,
        measure_service,
        profile_of,
    )

    largest = largest_batch(server.policies)
    settings = CalibrationSettings(
        tuple(sorted({b for b in BATCHES if b < largest} | {1, largest})),
        seconds=given["calibrate_seconds"], workers=server.workers)
    accuracy = {model.name: model.accuracy for level in server.policies.levels
                for station in level.stations for model in station.policy.models}
    accuracy |= {variant.name: variant.accuracy for variant in server.variants.variants
                 if variant.accuracy is not None}

    async def measured() -> ProfileSet:
        samples = await measure_service(server.variants, settings, pin=server.settings.pin)
        overhead_ms = await measure_overhead(server, _PROBES)
        return profile_of(server.variants, samples, accuracy, overhead_ms, settings)

    missing = [one.name for one in server.variants.variants if one.name not in accuracy]
    if missing:
        raise InputFileError("no accuracy is known", value=missing,
                             where=str(server.variants.path),
                             allowed="accuracy in the variants file")
    with event_loop() as runner:
        profile = runner.run(measured())
    save(profile, given["calibrate"])
    overhead = profile.measurement["overhead_ms"]
    click.echo(f"{given['calibrate']}: written; overhead besides: "
               + ", ".join(f"{name} {value:.3f} ms" for name, value in overhead.items()))
    click.echo(f"make policies with: ramsis generate --profiles {given['calibrate']} "
               f"--overhead-ms {overhead['p50']:.3f}")
