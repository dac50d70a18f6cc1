"""Which command lines read the files of the kit, and a valid line of each command."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.fuzz.files import IMPORTED, LOGS, REPORTED, TRACES

SMALL = ["--slo-ms", "100", "--workers", "4", "--grid", "fixed:8", "--max-queue", "4",
         "--headroom", "0"]
CLUSTER = ["--profiles", "{kit}/profile.json", "--slo-ms", "100", "--workers", "4"]
SHORT = ["--load", "100", "--duration-s", "0.2"]


@dataclass(frozen=True)
class Kind:
    """A kind of file: its place in the kit, its syntax, and the command lines that read it."""

    file: str
    syntax: str
    commands: Sequence[Sequence[str]]


_SIMULATE = ["simulate", *CLUSTER, *SHORT]
_GREEDY = ["simulate", *CLUSTER, "--scheduler", "greedy", "--duration-s", "0.2"]
_GENERATE = ["generate", "--profiles", "{kit}/profile.json", *SMALL]
_IMPORT = ["profile", "import", "{file}", "--out", "{out}"]
_REPORT = ["report", "{file}", "--out", "{out}"]
_SCENARIO = [
    ["validate", "{file}"], ["simulate", "{file}", "--scheduler", "clockwork"],
    ["simulate", "{file}", "--scheduler", "planned"],
    ["simulate", "{file}", "--scheduler", "random", "--scheduler", "lru", "--bound"],
    ["simulate", "{file}", "--timeline", "{out}", "--scheduler", "modified-baseline"],
    ["scenario", "placement", "{file}", "--out", "{out}"]]

READERS: Mapping[str, Kind] = {
    "profile": Kind("profile.json", "json", [
        ["profile", "check", "{file}"], ["profile", "show", "{file}"], ["validate", "{file}"],
        ["bound", "--profiles", "{file}", "--slo-ms", "100", "--workers", "4", "--load", "100"],
        ["simulate", "--profiles", "{file}", "--slo-ms", "100", "--workers", "2", *SHORT,
         "--scheduler", "jellyfish-plus"],
        ["simulate", "--profiles", "a={file},b={kit}/profile.json", "--slo-ms", "100",
         "--workers", "a=1,b=1", *SHORT, "--scheduler", "greedy"],
        ["generate", "--profiles", "{file}", *SMALL, "--load", "100", "--out", "{out}"],
        ["generate", "--profiles", "{file}", *SMALL, "--load", "100", "--models", "small,large",
         "--out", "{out}"], _REPORT]),
    "long CSV": Kind("long.csv", "csv", [[*_IMPORT, "--format", "long-csv"], _IMPORT]),
    "statistics": Kind("stats.csv", "csv", [_IMPORT]),
    "quantiles": Kind("quantiles.csv", "csv", [
        [*_IMPORT, "--accuracy", "{kit}/accuracy.csv"]]),
    "accuracies": Kind("accuracy.csv", "csv", [
        ["profile", "import", "{kit}/latency.csv", "--accuracy", "{file}", "--format",
         "long-csv", "--out", "{out}"]]),
    "accuracies in JSON": Kind("accuracy.json", "json", [
        ["profile", "import", "{kit}/latency.csv", "--accuracy", "{file}", "--format",
         "long-csv", "--out", "{out}"]]),
    **{f"runs of {name}": Kind(f"imports/{name}", one.syntax, [
        [*_IMPORT, *one.options, "--accuracy", "{kit}/imported.json"]])
       for name, one in {**IMPORTED, **REPORTED}.items()},
    "policy": Kind("policy.json", "json", [
        ["validate", "{file}"], ["analyze", "{file}"], ["policy", "show", "{file}"],
        ["verify", "{file}"], [*_SIMULATE, "--policy", "{file}"], _REPORT]),
    "central policy": Kind("central.json", "json", [
        ["validate", "{file}"], ["analyze", "{file}"], ["policy", "show", "{file}"],
        ["simulate", *CLUSTER[:-1], "2", *SHORT, "--policy", "{file}"], _REPORT]),
    "manifest": Kind("set/manifest.json", "json", [
        ["validate", "{folder}"], ["analyze", "{folder}"], ["validate", "{file}"],
        [*_SIMULATE, "--policy", "{folder}"], ["report", "{folder}", "--out", "{out}"],
        ["export", "ray-serve", "{folder}", "--variants", "{kit}/variants.toml", "--out",
         "{out}"],
        [*_GENERATE, "--load", "300", "--out", "{folder}"]]),
    "summary of a server's run": Kind("imports/loadgen", "lines", [
        ["analyze", "{kit}/set", "--loadgen", "{file}"]]),
    "placement problem": Kind("problem.json", "json", [
        ["place", "{file}", "--out", "{out}"], ["validate", "{file}"]]),
    "placement": Kind("placement.json", "json", [
        ["simulate", "--placement", "{file}", "--duration-s", "0.2"], ["validate", "{file}"],
        _REPORT]),
    "shared placement problem": Kind("shared-problem.json", "json", [
        ["place", "{file}", "--preset", preset, "--out", "{out}"]
        for preset in ("usher", "wao-usher", "igniter", "gpu-sharing")]),
    "shared placement": Kind("shared.json", "json", [
        ["simulate", "--placement", "{file}", "--duration-s", "0.5", "--interference", "thesis"],
        ["simulate", "--placement", "{file}", "--duration-s", "0.5", "--interference", "none",
         "--json"], _REPORT]),
    "scenario": Kind("scenario.json", "json", _SCENARIO),
    "scenario in TOML": Kind("scenario.toml", "toml", _SCENARIO),
    "rich scenario": Kind("rich.toml", "toml", [
        ["simulate", "{file}", "--scheduler", name, "--scheduler", other] for name, other in (
            ("lru", "random"), ("clockwork", "planned"), ("round-robin:variant=d", "autoscale"),
            ("planned", "modified-baseline:load_when=no-idle"),
            ("sigmaos-dynamic", "sigmaos-registry"))]),
    "sweep of scenarios": Kind("scenarios.toml", "toml", [
        ["sweep", "{file}", "--out", "{out}", "--processes", "1"]]),
    "agent": Kind("agent.json", "json", [
        ["validate", "{file}"],
        ["simulate", "{kit}/scenario.json", "--scheduler", "rl:agent={file}"]]),
    "value table": Kind("values.json", "json", [["validate", "{file}"]]),
    "sweep": Kind("sweep.toml", "toml", [
        ["sweep", "{file}", "--out", "{out}", "--processes", "1"]]),
    "results of a sweep": Kind("swept/results.csv", "csv", [
        _REPORT, ["report", "{folder}", "--out", "{out}"]]),
    "record of a sweep": Kind("swept/sweep.json", "json", [
        _REPORT, ["report", "{folder}", "--out", "{out}"]]),
    "rows of simulate": Kind("simulated.json", "json", [_REPORT]),
    "rows of capacity": Kind("needed.json", "json", [_REPORT]),
    "variants": Kind("variants.toml", "toml", [
        ["export", "ray-serve", "{kit}/set", "--variants", "{file}", "--out", "{out}"],
        ["serve", "{kit}/set", "--variants", "{file}", "--check"]]),
    **{f"log of {name}": Kind(f"logs/{name}", log.syntax, [
        ["audit", "{file}", *CLUSTER[:2], "--workers", "40", "--slo-ms", "100", "--seeds", "1",
         "--scheduler", "round-robin:grid=fixed:25,max_queue=2"],
        ["arrivals", "fit", "{file}"], [*_GREEDY, "--trace", "{file}"],
        [*_IMPORT, "--batch", "1", "--model-name", "m", "--accuracy", "{kit}/imported.json"]])
       for name, log in LOGS.items()},
    "timestamps": Kind("times.txt", "lines", [
        ["arrivals", "fit", "{file}", "--unit", "s"],
        [*_GREEDY, "--trace", "{file}", "--unit", "s"]]),
    "times in a table": Kind("times.csv", "csv", [
        ["arrivals", "fit", "{file}"], [*_GREEDY, "--trace", "{file}"]]),
    "rates": Kind("rates.txt", "lines", [[*_GREEDY, "--trace", "{file}"]]),
    "JSON lines": Kind("times.jsonl", "lines", [
        ["arrivals", "fit", "{file}", "--trace-format", "jsonl", "--time-column", "t", "--unit",
         "s"]]),
    "public trace": Kind("burst.csv", "csv", [["arrivals", "fit", "{file}"]]),
    **{f"trace of {name}": Kind(f"traces/{name}", one.syntax, [
        [*_GREEDY, "--trace", "{file}", *one.options]])
       for name, one in TRACES.items()},
    "compressed trace": Kind("times.txt.gz", "bytes", [
        ["arrivals", "fit", "{file}", "--unit", "s"]]),
    "request log": Kind("log.csv", "csv", [
        ["audit", "{file}", "--profiles", "{kit}/profile.json", "--workers", "4", "--seeds",
         "1"],
        [*_IMPORT, "--format", "request-log", "--accuracy", "{kit}/three.csv"]]),
    "data to send": Kind("data.npz", "bytes", [
        ["load", "http://127.0.0.1:9/v2/models/x", "--slo-ms", "100", "--load", "50",
         "--duration-s", "0.1", "--timeout-s", "1", "--data", "{file}"]]),
}

COMMANDS: Mapping[str, Sequence[str]] = {
    "profile check": ["profile", "check", "{kit}/profile.json"],
    "profile show": ["profile", "show", "{kit}/profile.json"],
    "profile plot": ["profile", "plot", "{kit}/profile.json", "--out", "{out}.png"],
    "profile import": ["profile", "import", "{kit}/long.csv", "--out", "{out}"],
    "profile import of runs": ["profile", "import", "{kit}/imports/trtexec", "--accuracy",
                               "{kit}/imported.json", "--model-name", "m", "--batch", "1",
                               "--out", "{out}"],
    "profile measure": ["profile", "measure", "tests.fuzz.kit:measured", "--backend", "callable",
                        "--batches", "1", "--seconds-per-batch", "0.01", "--min-samples", "2",
                        "--max-samples", "3", "--accuracy", "{kit}/one.json", "--out", "{out}"],
    "arrivals fit": ["arrivals", "fit", "{kit}/times.csv"],
    "generate": [*_GENERATE, "--load", "100", "--out", "{out}"],
    "generate for some models": [*_GENERATE, "--load", "100", "--models", "small,large", "--out",
                                 "{out}"],
    "generate for types": [
        "generate", "--profiles", "a={kit}/profile.json,b={kit}/profile.json", "--slo-ms", "100",
        "--workers", "a=1,b=2", "--grid", "fixed:8", "--max-queue", "4", "--headroom", "0",
        "--load", "100", "--out", "{out}"],
    "analyze": ["analyze", "{kit}/set"],
    "analyze a run": ["analyze", "{kit}/set", "--loadgen", "{kit}/imports/loadgen"],
    "simulate": [*_SIMULATE, "--scheduler", "jellyfish-plus"],
    "simulate some models": [*_SIMULATE, "--scheduler", "greedy", "--models", "small"],
    "simulate policy": [*_SIMULATE, "--policy", "{kit}/set"],
    "simulate placement": ["simulate", "--placement", "{kit}/placement.json", "--duration-s",
                           "0.2"],
    "cluster": ["simulate", "{kit}/scenario.json", "--scheduler", "clockwork"],
    "cluster of schedulers": ["simulate", "{kit}/scenario.toml", "--scheduler", "clockwork",
                              "--scheduler", "lru", "--bound"],
    "cluster placement": ["simulate", "--placement", "{kit}/shared.json", "--interference",
                          "thesis",
                          "--duration-s", "0.5"],
    "scenario placement": ["scenario", "placement", "{kit}/scenario.json", "--out", "{out}"],
    "sweep": ["sweep", "{kit}/sweep.toml", "--out", "{out}", "--processes", "1"],
    "capacity": ["capacity", "--profiles", "{kit}/profile.json", "--slo-ms", "100", *SHORT,
                 "--scheduler", "jellyfish-plus", "--seeds", "1", "--max-violation", "0.5"],
    "frontier": ["frontier", *CLUSTER, "--load", "100", "--points", "2", "--queries", "1000",
                 "--max-queue", "4"],
    "bound": ["bound", *CLUSTER, "--load", "100"],
    "place": ["place", "{kit}/problem.json", "--out", "{out}"],
    "place sharing": ["place", "{kit}/shared-problem.json", "--preset", "usher", "--out",
                      "{out}"],
    "policy show": ["policy", "show", "{kit}/policy.json"],
    "report": ["report", "{kit}/set", "{kit}/profile.json", "{kit}/simulated.json",
               "{kit}/needed.json", "{kit}/placement.json", "{kit}/swept", "--out", "{out}"],
    "validate": ["validate", "{kit}/set"],
    "verify": ["verify", "{kit}/policy.json"],
    "audit": ["audit", "{kit}/log.csv", "--profiles", "{kit}/profile.json", "--workers", "4",
              "--seeds", "1", "--scheduler", "central-queue:max_queue=4,grid=fixed:8"],
    "export ray-serve": ["export", "ray-serve", "{kit}/set", "--variants",
                         "{kit}/variants.toml", "--out", "{out}"],
    "load": ["load", "http://127.0.0.1:9/v2/models/x", "--slo-ms", "100", "--load", "50",
             "--duration-s", "0.1", "--timeout-s", "1"],
    "serve": ["serve", "{kit}/set", "--variants", "{kit}/variants.toml", "--check"],
    "help": ["help", "generate"],
    "completion": ["completion", "bash"],
}
"""A valid command line of each command; ``serve`` fails, as its models do not exist."""
