"""``ramsis validate``: schema and consistency of any of the project's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from ramsis import policy, profiles
from ramsis.cli.options.command import Command
from ramsis.cli.options.param_types import complete_files
from ramsis.errors import InputFileError
from ramsis.files import read_document
from ramsis.runtime.sized import SIZED_FORMAT, SIZED_MANIFEST_FORMAT
from ramsis.schemas import check_schema


@click.command("validate", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", shell_complete=complete_files)
def validate_command(files: tuple[str, ...]) -> None:
    """Check the schema and consistency of policies, profiles, plans, placements, scenarios.

    FILE is a policy file, a profile file, a plan, a placement problem, a placement, a value table,
    a scenario, an agent, a scaling policy, what a command printed with --json, a manifest, or a
    folder with a manifest or a plan; a manifest stands for all policy files that it names. Prints
    a line for each FILE and goes on after a bad one; the exit code is 3 if any is bad.

    \b
    Examples:
      $ ramsis validate policies_out/example
      $ ramsis validate policies_out/example/round-robin-00400qps.json
    """
    bad = 0
    for file in files:
        try:
            click.echo(f"ok {file}: {_validate(file)}")
        except InputFileError as error:
            if len(files) == 1:
                raise
            bad += 1
            click.echo(f"error: {error}", err=True)
    if bad:
        raise InputFileError(f"{bad} of {len(files)} files are not valid")


def _validate(file: str) -> str:
    """Validate a file and describe it in a few words."""
    if Path(file, "plan.json").is_file():
        return _plan(Path(file, "plan.json"))
    if Path(file).is_dir():
        manifest = Path(file, policy.MANIFEST_NAME)
        if manifest.is_file() and read_document(manifest).get("format") == SIZED_MANIFEST_FORMAT:
            return _sized(manifest)
        return _policy_set(Path(file))
    document = read_document(file)
    if document.keys() >= {"created_by", "command", "rows"}:
        check_schema(document, "ramsis.cli.output", "results-1", file)
        command = document["command"].partition(" -")[0]
        return f"results of `{command}`, {_count(len(document['rows']), 'row')}"
    file_format = document.get("format")
    check = _CHECKS.get(file_format) if isinstance(file_format, str) else None
    if check is None:
        raise InputFileError("unknown format or version", where=f"{file}: format",
                             value=file_format,
                             allowed=", ".join(_CHECKS))
    return check(Path(file))


def _policy(path: Path) -> str:
    checked = policy.validate(path)
    return (f"{checked.dispatch} policy for {checked.load_qps:g} QPS ({checked.arrivals_label}), "
            f"{checked.workers} workers, SLO {checked.slo_ms:g} ms")


def _policy_set(folder: Path) -> str:
    checked = policy.validate_set(folder)
    loads = [level.load_qps for level in checked.levels]
    files = sum(len(level.stations) for level in checked.levels)
    words = f"policy set, {_count(files, 'file')} for {min(loads):g} to {max(loads):g} QPS"
    if len(checked.worker_types) > 1 or len(checked.slo_classes) > 1:
        words += (f", {_count(len(checked.worker_types), 'worker type')} and "
                  f"{_count(len(checked.slo_classes), 'SLO class', 'SLO classes')}")
    return words


def _sized(path: Path) -> str:
    from ramsis.sized.policy import validate_sized

    checked = validate_sized(path)
    words = f"{_count(len(checked), 'policy', 'policies')} for requests with a size, "
    loads = [policy.load_qps for policy in checked]
    span = f"{loads[0]:g}" if len(loads) == 1 else f"{loads[0]:g} to {loads[-1]:g}"
    tables = checked[0].tables
    return (f"{words}{span} QPS, {_count(tables.workers, 'worker')}, SLO {tables.slo_ms:g} ms")


def _count(number: int, what: str, several: str | None = None) -> str:
    return f"{number} {what if number == 1 else several or what + 's'}"


def _manifest(path: Path) -> str:
    if path.name != policy.MANIFEST_NAME:
        raise InputFileError("manifest under another name", where=str(path),
                             allowed=policy.MANIFEST_NAME)
    return _policy_set(path.parent)


def _profile(path: Path) -> str:
    checked = profiles.load(path)
    return f"profile set {checked.name}, {_count(len(checked.models), 'model')}"


def _problem(path: Path) -> str:
    import placement_milp  # here, as its solvers take long to load

    checked = placement_milp.read_problem(path)
    workers = sum(item.count for item in checked.worker_types)
    return (f"placement problem {checked.name}, {_count(len(checked.variants), 'variant')}, "
            f"{_count(workers, 'worker')}")


def _plan(path: Path) -> str:
    document = read_document(path)
    check_schema(document, "ramsis.cli.output", "plan-1", str(path))
    if "verdict" not in document:
        return "plan, not finished: the same `ramsis plan` goes on with it"
    verdict = document["verdict"]
    return (f"plan, {_count(verdict['workers'], 'worker')} by {verdict['dispatch']}, policies in "
            f"{verdict['policies']}")


def _placement(path: Path) -> str:
    import placement_milp

    checked = placement_milp.read_placement(path)
    workers = sum(len(group.workers) for group in checked.groups)
    return f"placement {checked.problem.name}, {_count(workers, 'worker')} in use"


def _values(path: Path) -> str:
    import placement_milp

    return f"value table, {_count(len(placement_milp.read_values(path)), 'row')}"


def _scenario(path: Path) -> str:
    from ramsis.scenario import read_scenario

    checked = read_scenario(path)
    return (f"scenario {checked.name}, {_count(len(checked.arrays.workers), 'worker')}, "
            f"{_count(len(checked.arrays.models), 'model')}, "
            f"{_count(len(checked.streams), 'stream')}")


def _agent(path: Path) -> str:
    from ramsis.studies.clockwork_rl.agent import read_agent

    checked = read_agent(path)
    return (f"agent, {_count(checked.slots, 'slot')}, "
            f"{_count(len(checked.batch_sizes), 'batch size')}")


def _scaling(path: Path) -> str:
    from ramsis.scaling.policy_file import validate_scaling

    checked, _ = validate_scaling(path)
    return (f"scaling policy, {checked.least} to {checked.most} workers, "
            f"{_count(len(checked.levels_qps), 'level')} up to {checked.levels_qps[-1]:.4g} QPS")


_CHECKS: dict[str, Callable[[Path], str]] = {
    policy.POLICY_FORMAT: _policy,
    policy.MANIFEST_FORMAT: _manifest,
    SIZED_FORMAT: _sized,
    SIZED_MANIFEST_FORMAT: _sized,
    profiles.FORMAT: _profile,
    "ramsis.placement-problem/1": _problem,
    "ramsis.placement/1": _placement,
    "ramsis.value-table/1": _values,
    "ramsis.scenario/1": _scenario,
    "ramsis.agent/1": _agent,
    "ramsis.scaling/1": _scaling,
    "ramsis.plan/1": _plan,
}
