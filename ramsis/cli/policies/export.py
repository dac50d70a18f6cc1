"""``ramsis export``: configurations and code for other serving systems."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from placement_milp import read_placement
from placement_milp.mig import kubernetes_resources, mig_nodes, mig_parted
from ramsis.cli.options.command import CommandGroup
from ramsis.cli.options.param_types import OUT_FILE, OUT_FOLDER
from ramsis.cli.options.shared import variants_options
from ramsis.errors import InvalidValueError, install
from ramsis.files import write_atomic
from ramsis.policy import Policy, PolicySet
from ramsis.runtime.sized import SizedTables
from ramsis.serving.export.codegen.sources import (
    c_header,
    go_file,
    sized_go_file,
    sized_header,
)
from ramsis.serving.export.kubernetes import manifests, manifests_text
from ramsis.serving.export.ray_configuration import configuration, yaml_text
from ramsis.serving.export.triton import (
    compile_command,
    write_batching,
    write_repository,
)
from ramsis.serving.export.triton import configuration as triton_configuration
from ramsis.serving.policies import check_served, largest_batch, read_policies, selectors_of
from ramsis.serving.scaling.fleet import read_fleet, scaling_file
from ramsis.serving.variants import VariantsFile, read_variants
from ramsis.sized.policy import is_sized, read_sized


@click.group("export", cls=CommandGroup)
def export() -> None:
    """Write configurations and code for other serving systems."""


@export.command("ray-serve", short_help="Write a configuration for Ray Serve.")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@variants_options
@click.option("--out", type=OUT_FILE, required=True,
              metavar="FILE", help="YAML file to write.")
@click.option("--overhead-ms", type=click.FloatRange(min=0), default=0.0, show_default=True,
              help="Overhead to subtract from every slack, besides service times.")
def export_ray_serve(policies: Path, variants: str, out: Path, overhead_ms: float) -> None:
    """Write the configuration with which `serve run` of Ray serves by policies.

    A deployment of workers runs batches; a dispatcher forms them by table and deadline, and
    answers the Open Inference Protocol. On each node paths must be the same and `ramsis[ray]`
    installed. With a scaling policy, as `ramsis scale` writes it, the number of workers follows
    it.

    \b
    Examples:
      $ ramsis export ray-serve policies_out/example --variants variants.toml --out app.yaml
    """
    models, scaling = read_variants(variants), scaling_file(policies)
    models.refuse_sizes("Ray Serve")
    fleet = None if scaling is None else read_fleet(scaling)
    policy_set = read_policies(policies) if fleet is None else fleet.policies(fleet.table.most)
    check_served(policy_set, [variant.name for variant in models.variants], None, variants)
    if fleet is not None:
        fleet.check([variant.name for variant in models.variants], variants)
    write_atomic(out, yaml_text(configuration(
        policy_set, policies if scaling is None else scaling, models, overhead_ms=overhead_ms,
        scaling=None if fleet is None else fleet.table)))
    click.echo(f"{out}: serve run {shlex.quote(str(out))}")


@export.command("triton", short_help="Write a model or a batching library for Triton.")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@partial(variants_options, required=False)
@click.option("--out", type=OUT_FOLDER, required=True, metavar="DIR",
              help="Model repository; the model's folder replaces an earlier export.")
@click.option("--overhead-ms", type=click.FloatRange(min=0),
              help="Overhead to subtract from every slack, besides service times.  [default: "
                   "measured]")
@click.option("--batching", is_flag=True,
              help="Instead, write a batching library for a model of Triton's own back ends.")
@click.option("--size", metavar="SOURCE", help="With --batching: size of a request, as "
              "input_ids:1 or parameters.tokens.")
@click.option("--limit-ms", type=float, metavar="MS",
              help="With --batching: longest batch.  [default: a quarter of the SLO]")
def export_triton(
    policies: Path, variants: str | None, out: Path, overhead_ms: float | None, batching: bool,
    size: str | None, limit_ms: float | None,
) -> None:
    """Write a model of Triton Inference Server that serves by policies.

    POLICIES is a folder or a file. Triton holds no request and forms no batch: the model does, and
    runs the variants in its process. HTTP, gRPC and gRPC streams reach it. The Python that
    Triton's Python backend has needs `ramsis[serve]`, and Triton has to be 24.06 (2.47) or later.
    Each variant is loaded and run before anything is written.

    With --batching Triton keeps queue and model, and policies for requests with a size limit its
    batches, in the order of arrival.

    \b
    Examples:
      $ ramsis export triton policies_out/example --variants variants.toml --out repository
      $ ramsis export triton sized --batching --size input_ids:1 --out batching
    """
    if batching:
        _batching(policies, variants, out, overhead_ms, size, limit_ms)
        return
    for name, value in (("--size", size), ("--limit-ms", limit_ms)):
        if value is not None:
            raise InvalidValueError("for a batching library only", where=name, value=value,
                                    allowed="with --batching")
    if variants is None:
        raise InvalidValueError("missing", where="--variants",
                                allowed="a TOML file of the models to run; or --batching")
    from ramsis.serving.confidences import ConfidenceReader
    from ramsis.serving.event_loop import event_loop
    from ramsis.serving.workers.pool import checked

    policy_set, models = read_policies(policies), read_variants(variants)
    models.refuse_sizes("Triton")
    check_served(policy_set, [variant.name for variant in models.variants], None, variants)
    with event_loop() as runner:
        inputs, outputs = runner.run(checked(models, largest_batch(policy_set)))
    if models.confidence is not None:
        ConfidenceReader(models.confidence, outputs, variants)
    config = triton_configuration(models, policies, inputs, outputs, overhead_ms)
    write_repository(out, models.name, config)
    click.echo(f"{out}: " + shlex.join(["tritonserver", f"--model-repository={out}"]))
    click.echo(f"  POST /v2/models/{models.name}/infer, or gRPC; the deadline is the parameter "
               "deadline_ms")
    click.echo(f"  Triton's Python needs ramsis: {install('serve')} there, or PYTHONPATH")
    click.echo(f"  other policies: write them to {policies}, and load the model once more")


def _batching(
    policies: Path, variants: str | None, out: Path, overhead_ms: float | None, size: str | None,
    limit_ms: float | None,
) -> None:
    """Write the batching library; print its path and the change of Triton's configuration."""
    for name, value in (("--variants", variants), ("--overhead-ms", overhead_ms)):
        if value is not None:
            raise InvalidValueError("the models stay on Triton's back ends", where=name,
                                    value=value, allowed="not with --batching")
    if not is_sized(policies):
        read_policies(policies)  # says so where there are none
        raise InvalidValueError("batches are limited by the sizes of requests",
                                where=str(policies),
                                allowed="policies of `ramsis generate --sizes`")
    if size is None:
        raise InvalidValueError("missing", where="--size",
                                allowed="INPUT:AXIS, such as input_ids:1, or parameters.NAME")
    tables = read_sized(policies)[-1].tables
    library = write_batching(out, tables, size, limit_ms)
    if library is None:
        click.echo(f"{out}: no C compiler here; compile where Triton runs: {compile_command(out)}")
    else:
        click.echo(f"{library}: a batching library for {tables.models[0]}")
    click.echo(f"  config.pbtxt of the model: add {out / 'batching.pbtxt'}")


@export.command("kubernetes", short_help="Write a Deployment, Services, alerts and scaling.")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@variants_options
@click.option("--name", default="ramsis", show_default=True,
              help="Name of the Deployment, its Services and labels.")
@click.option("--image", required=True,
              help="Container image with ramsis, as docs/deploy/Dockerfile builds it.")
@click.option("--claim", default="models", show_default=True,
              help="PersistentVolumeClaim with the policies and the variants file.")
@click.option("--drain-s", type=click.FloatRange(min=0), default=10.0, show_default=True,
              help="Time to answer requests under way when a pod stops.")
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE", help="YAML file to write.")
def export_kubernetes(
    policies: Path, variants: str, name: str, image: str, claim: str, drain_s: float, out: Path
) -> None:
    """Write Kubernetes manifests: a Deployment with probes, Services, alerts and scaling.

    POLICIES is a folder of `generate`, whose server runs all its workers in a pod; or a folder of
    `scale`, then a pod is one worker and KEDA follows the scaling policy. The volume of the claim
    holds POLICIES and the variants file under their names. The alerts are a PrometheusRule.

    \b
    Examples:
      $ ramsis export kubernetes policies_out/example --variants variants.toml \\
          --image registry.example/ramsis:1 --name digits --out digits.yaml
    """
    models, scaling = read_variants(variants), scaling_file(policies)
    fleet = None if scaling is None else read_fleet(scaling)
    policy_set = read_policies(policies) if fleet is None else fleet.policies(1)
    check_served(policy_set, [variant.name for variant in models.variants], None, variants)
    parts = manifests(
        policies.resolve(), Path(variants), name=name, image=image, claim=claim,
        workers=1 if fleet is not None else sum(policy_set.worker_types.values()),
        drain_s=drain_s, scaling=None if fleet is None else fleet.table,
        code=sorted({variant.model for variant in models.variants
                     if variant.backend == "callable"}))
    write_atomic(out, manifests_text(parts))
    click.echo(f"{out}: kubectl apply -f {shlex.quote(str(out))}")
    inside, outside = _files(models)
    *names, last = [policies.resolve().name, Path(variants).name, *inside]
    click.echo(f"  copy into the volume of the claim {claim}: {', '.join(names)} and {last}")
    if outside:
        click.echo(f"  not beside {Path(variants).name}, so the image has to hold "
                   + ", ".join(outside))


def _files(models: VariantsFile) -> tuple[list[str], list[str]]:
    """Return the files of models, weights and code inside the folder of the variants file.

    The second list has such files outside this folder.
    """
    paths: set[Path] = set()
    for variant in models.variants:
        if variant.backend == "callable":
            module = models.folder / variant.model.partition(":")[0].split(".")[0]
            paths.update(path for path in (module, module.with_suffix(".py")) if path.exists())
        elif variant.backend == "onnx" or Path(variant.model).is_absolute():
            paths.add(Path(variant.model))
        if variant.options.weights is not None:
            paths.add(Path(variant.options.weights))
    inside = [path for path in sorted(paths) if path.is_relative_to(models.folder)]
    return ([path.relative_to(models.folder).as_posix() for path in inside],
            [str(path) for path in sorted(paths.difference(inside))])


@export.command("c", short_help="Write policies as a C header.")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE", help="Header to write.")
@click.option("--prefix", default="ramsis", show_default=True, metavar="NAME",
              help="Prefix of the names in the header, unique in a program.")
def export_c(policies: Path, out: Path, prefix: str) -> None:
    """Write policies as a C header, for servers without Python.

    POLICIES is a folder or a file. The header holds tables, lookup, choice of level and station,
    routing and load monitor; of policies for requests with a size, tables and lookup. It is C99
    and C++11, needs no library and allocates nothing.

    \b
    Examples:
      $ ramsis export c policies_out/example --out policies.h
    """
    if is_sized(policies):
        _write_sized_code(policies, partial(sized_header, prefix=prefix), out)
        return
    policy_set = read_policies(policies)
    _write_code(policy_set, c_header(selectors_of(policy_set), prefix), out)


@export.command("go", short_help="Write policies as a Go file.")
@click.argument("policies", type=click.Path(path_type=Path), metavar="POLICIES")
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE", help="Go file to write.")
@click.option("--package", default="ramsis", show_default=True, metavar="NAME",
              help="Name of the package.")
def export_go(policies: Path, out: Path, package: str) -> None:
    """Write policies as a Go file, for servers without Python.

    POLICIES is a folder or a file. The file holds tables, lookup, choice of level and station,
    routing and load monitor; of policies for requests with a size, tables and lookup. It needs
    Go 1.18 and the standard library only.

    \b
    Examples:
      $ ramsis export go policies_out/example --out policies.go
    """
    if is_sized(policies):
        _write_sized_code(policies, partial(sized_go_file, package=package), out)
        return
    policy_set = read_policies(policies)
    _write_code(policy_set, go_file(selectors_of(policy_set), package), out)


def _write_sized_code(
    policies: Path, code_of: Callable[[Sequence[tuple[float, SizedTables]]], str], out: Path
) -> None:
    """Write source code of policies for requests with a size, and print a summary."""
    sized = read_sized(policies)
    write_atomic(out, code_of([(policy.load_qps, policy.tables) for policy in sized]))
    models = {name for policy in sized for name in policy.tables.models}
    for policy in sized:
        if policy.tables.plan is not None:
            gain = policy.expectations["rule_gain"]
            click.echo(f"note: at {policy.load_qps:g} QPS replanned-dp decides, which the code "
                       f"lacks: its rule is {-gain:.4f} below in value", err=True)
    click.echo(f"{out}: {len(sized)} policies for requests with a size, {len(models)} models")


def _write_code(policies: PolicySet[Policy], code: str, out: Path) -> None:
    """Write the exported source code, and print a summary."""
    write_atomic(out, code)
    held = [station.policy for level in policies.levels for station in level.stations]
    models = {model.name for policy in held for model in policy.models}
    click.echo(f"{out}: {len(policies.levels)} levels, {len(held)} policies, "
               f"{len(models)} models")


@export.command("mig", short_help="Write MIG instances for NVIDIA's tools.")
@click.argument("placement", type=click.Path(path_type=Path), metavar="PLACEMENT")
@click.option("--out", type=OUT_FILE, required=True, metavar="FILE",
              help="YAML file of nvidia-mig-parted to write.")
@click.option("--kubernetes", type=OUT_FILE, metavar="FILE",
              help="Also write the resources of nodes and replicas, by Kubernetes' names.")
@click.option("--gpus-per-node", type=click.IntRange(min=1), default=8, show_default=True,
              help="GPUs per node, if names are not NODE:INDEX.")
def export_mig(
    placement: Path, out: Path, kubernetes: Path | None, gpus_per_node: int
) -> None:
    """Write the instances of a placement's GPUs as NVIDIA's tools take them.

    PLACEMENT is what `ramsis place` wrote for GPUs with "partitions". The YAML has a
    configuration for each node; prints the command that applies it, and the node's resources.

    \b
    Examples:
      $ ramsis export mig gpus.json --out mig.yaml
      $ ramsis export mig gpus.json --out mig.yaml --kubernetes resources.yaml
    """
    placed = read_placement(placement)
    nodes = mig_nodes(placed, gpus_per_node)
    write_atomic(out, yaml_text(mig_parted(nodes)))
    for node in nodes:
        click.echo(f"{node.name}: nvidia-mig-parted apply -f {shlex.quote(str(out))} "
                   f"-c {shlex.quote(node.name)}")
        for resource, count in node.resources().items():
            click.echo(f"  {resource}: {count}")
    if kubernetes is not None:
        write_atomic(kubernetes, yaml_text(kubernetes_resources(placed, nodes)))
        click.echo(f"resources in {kubernetes}")
