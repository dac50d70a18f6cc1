"""Exported code, compiled with a driver that answers questions, and questions to put to it."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ramsis.runtime import Decision, Drop, PolicySet, Selector, Wait, selector_of, set_of_selectors
from ramsis.runtime.cascade import Keep, WaitForEither
from ramsis.serving.export.codegen.sources import c_header, go_file
from tests.central import samples as central
from tests.policy.samples import large_policy
from tests.reference import lookup as twin
from tests.runtime import cascades

HERE = Path(__file__).parent
QUESTION = np.dtype([("op", "i8"), ("a", "i8"), ("b", "i8"), ("c", "i8"), ("x", "f8"),
                     ("y", "f8")])
REPLY = np.dtype([("kind", "i8"), ("model", "i8"), ("batch", "i8"), ("run_as", "i8"),
                  ("passed", "i8"), ("x", "f8")])
LOOKUP, CHOOSE, ROUTE, ROUTER, IN_SYSTEM, JOIN, MONITOR, RECORD, LOAD, NAME = range(1, 11)
SLOW, TERMS, OPINION, OTHER_WAIT, LEVEL, UNSURE = range(11, 17)
ERROR, RUN, DROP, WAIT, SECOND, KEEP = range(6)
PRESENT_LEVEL = -1
ONLY_WORKER = -(2**63)

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
C = ["gcc", "-std=c99", *WARNINGS, "-O2"]
COMPILERS = {
    "c": C,
    "c++": ["g++", "-x", "c++", "-std=c++11", *WARNINGS, "-O2"],
    "extended precision": [*C, "-mfpmath=387"],
    "fast math": [*C, "-O3", "-ffast-math"],
    "sanitised": [*C, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
}
LANGUAGES = [*COMPILERS, "go"]
GO_ENVIRONMENT = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod",
                  "GOWORK": "off", "CGO_ENABLED": "0"}

Asked = tuple[int, int, int, int, float, float]
Array = npt.NDArray[Any]


def built(language: str, policies: PolicySet[Selector], folder: Path) -> list[str]:
    """The command of a program with these policies; the test is skipped without its compiler."""
    folder.mkdir(parents=True, exist_ok=True)
    if language == "go":
        return go_program(go_file(policies), folder, HERE / "driver.go")
    compiler = COMPILERS[language]
    needs(compiler[0])
    (folder / "policies.h").write_text(c_header(policies))
    program = folder / "program"
    ran = subprocess.run([*compiler, f"-I{folder}", HERE / "driver.c", "-o", program],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [str(program)]


def go_program(code: str, folder: Path, main: Path) -> list[str]:
    """The command of a Go program of a main file and the exported code of a package ``ramsis``."""
    needs("go")
    (folder / "ramsis").mkdir(exist_ok=True)
    (folder / "ramsis" / "policies.go").write_text(code)
    (folder / "go.mod").write_text("module driver\n\ngo 1.18\n")
    shutil.copy(main, folder / "main.go")
    go("build", "-o", "program", ".", folder=folder)
    return [str(folder / "program")]


def go(*words: str, folder: Path) -> str:
    """What a command of ``go`` prints, which must succeed; nothing is fetched."""
    ran = subprocess.run(["go", *words], cwd=folder, env=os.environ | GO_ENVIRONMENT, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def check_go(folder: Path) -> None:
    """Check that ``go vet`` and ``gofmt`` have nothing to say about the code in a folder."""
    assert go("vet", "./...", folder=folder) == ""
    gofmt = shutil.which("gofmt") or Path(go("env", "GOROOT", folder=folder).strip(),
                                          "bin", "gofmt")
    assert subprocess.run([gofmt, "-l", "."], cwd=folder, check=True,
                          capture_output=True).stdout == b""


def needs(tool: str) -> None:
    """Skip the test where a tool is not installed."""
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool}")


def ask(command: Sequence[str], questions: Array | Sequence[Asked]) -> Array:
    """The replies of a program."""
    data = np.asarray(questions, QUESTION)
    ran = subprocess.run(command, input=data.tobytes(), capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    replies = np.frombuffer(ran.stdout, REPLY)
    assert len(replies) == len(data)
    return replies


def selector(document: Any) -> Selector:
    """Of a policy document."""
    return selector_of(document, "sample")


def as_set(selectors: Sequence[Selector]) -> PolicySet[Selector]:
    """A set in which policy k has index k: its load is made k + 1."""
    return set_of_selectors(
        Selector(one.table._replace(load_qps=k + 1.0, arrivals="poisson"), one.cascade)
        for k, one in enumerate(selectors))


@cache
def samples() -> list[Selector]:
    """Policies of all kinds: those of the vectors, two large ones, and random tables."""
    documents = [one["policy"] for one in twin.vectors()["lookups"]]
    large = [large_policy(), central.policy(6000.0)]
    return [*map(selector, documents), *(Selector(one.decision_table()) for one in large),
            *(selector(random_document(Random(seed))) for seed in range(8))]


@cache
def opinion_samples() -> list[Selector]:
    """Policies with second opinions: those of the vectors, random ones, and one without."""
    drawn = (cascades.selector_of(cascades.drawn_document(
        np.random.default_rng(seed), 2, ("central-queue", "round-robin")[seed % 2]))
             for seed in range(8))
    return [*(selector(vector["policy"]) for vector in twin.vectors()["second_opinions"]), *drawn,
            selector(twin.CENTRAL)]


def random_document(random: Random) -> dict[str, Any]:
    """A central queue with random axes and rows of any code."""
    idle = [0, *sorted({1, *random.sample(range(2, 40), random.randint(0, 6))})]
    queued = [0, *sorted({1, *random.sample(range(2, 60), random.randint(0, 8))})]
    slack = [0.0, *sorted(random.uniform(1e-9, 100.0) for _ in range(random.randint(0, 40)))]
    models = [{"name": f"m{k}", **({"run_as": [b + random.randint(0, 3) for b in range(1, 9)]}
                                   if random.random() < 0.5 else {})} for k in range(4)]
    actions = [[m, b] for m, b in product(range(4), range(1, queued[-1] + 1))
               if random.random() < 0.3 or (m, b) == (0, 1)]

    def code(longest: int) -> int:
        fit = [c for c, (_, batch) in enumerate(actions) if batch <= longest]
        return random.choice([-1, -2, *random.choices(fit, k=3)])

    rows, index = [], []
    for _ in idle[1:]:
        index.append(list(range(len(rows), len(rows) + len(queued) - 1)))
        for longest in queued[1:]:
            bins = [0, *sorted(random.sample(range(1, len(slack)),
                                             random.randint(0, len(slack) - 1)))]
            rows.append([x for j in bins for x in (j, code(longest))])
    return {**twin.CENTRAL, "models": models, "workers": idle[-1],
            "table": {
                "axes": {"idle": idle, "queued": queued, "slack_ms": slack}, "actions": actions,
                "rows": rows, "index": index, "longer_queue": random.choice([-2, 0])}}


def random_questions(selectors: Sequence[Selector], count: int, rng: np.random.Generator) -> Array:
    """Lookups of policies at random; slacks at, beside and between edges, and far from them."""
    asked = np.zeros(count, QUESTION)
    asked["op"], asked["a"] = LOOKUP, rng.integers(0, len(selectors), count)
    strange = np.array([-np.inf, np.inf, np.nan, -0.0, -1e308, 1e308, 5e-324])
    for k, one in enumerate(selectors):
        here = np.flatnonzero(asked["a"] == k)
        edges = np.asarray(one.table.slack_ms)
        edges = np.concatenate([edges, edges - 1e-6])
        near = np.concatenate([edges, np.nextafter(edges, np.inf), np.nextafter(edges, -np.inf)])
        slack = rng.uniform(-10.0, 1.1 * one.table.slo_ms, here.size)
        kinds = rng.random(here.size)
        slack = np.where(kinds < 0.5, rng.choice(near, here.size), slack)
        asked["x"][here] = np.where(kinds > 0.99, rng.choice(strange, here.size), slack)
        asked["b"][here] = _counts(rng, here.size, one.table.queued[-1] + 3)
        idle = _counts(rng, here.size, one.table.idle[-1] + 3)
        asked["c"][here] = np.where(rng.random(here.size) < 0.05, ONLY_WORKER, idle)
    return asked


def random_opinions(
    selectors: Sequence[Selector], count: int, rng: np.random.Generator
) -> list[Asked]:
    """Lookups of second opinions at random: their terms, the lookup, and its other wait."""
    asked: list[Asked] = []
    strange = [-np.inf, np.inf, np.nan, -0.0, -1e308, 1e308, 5e-324]
    for _ in range(count):
        k = int(rng.integers(len(selectors)))
        rule = selectors[k].cascade
        if rule is None:
            asked += [(TERMS, PRESENT_LEVEL, 0, 0, 1.0, 0.0), (OPINION, k, 1, 1, 50.0, 50.0),
                      (OTHER_WAIT, 0, 0, 0, 0.0, 0.0)]
            continue
        second_ms = np.asarray(rule.table.second_ms)
        edges = np.concatenate([second_ms, second_ms + rule.table.last_call_ms,
                                rule.table.step_ms * np.arange(rule.table.bins)])
        near = rng.choice(edges, 2) + rng.choice([0.0, 1e-6, -1e-6, -2e-6], 2)
        near = np.nextafter(near, rng.choice([-np.inf, np.inf], 2)) if rng.random() < 0.5 else near
        kind = rng.random()
        slacks = (rng.choice(strange, 2) if kind < 0.02 else near if kind < 0.6
                  else rng.uniform(-5.0, 100.0, 2)).tolist()
        fresh, unsure = (int(n) for n in _counts(rng, 2, 12))
        level = (int(rng.integers(-1, len(rule.table.gather) + 1)) if rng.random() < 0.3
                 else PRESENT_LEVEL)
        asked += [(TERMS, level, 0, 0, 1.0 if rng.random() < 0.8 else 1.5, 0.0),
                  (OPINION, k, fresh, unsure, *slacks), (OTHER_WAIT, 0, 0, 0, 0.0, 0.0)]
    return asked


def runtimes_opinions(selectors: Sequence[Selector], asked: Sequence[Asked]) -> list[Any]:
    """What the runtime answers to the questions of :func:`random_opinions`, waits as pairs."""
    models, replies = model_numbers(selectors), []
    for (_, level, _, _, slowness, _), (_, k, fresh, unsure, slack_ms, unsure_slack_ms) in zip(
            asked[::3], asked[1::3], strict=True):
        rule = selectors[k].cascade
        if (rule is None or fresh < 0 or unsure < 0 or level >= len(rule.table.gather)
                or (fresh and np.isnan(slack_ms)) or (unsure and np.isnan(unsure_slack_ms))):
            replies.append((ERROR, 0, 0, 0, None, (-np.inf, -np.inf)))
            continue
        counts = (fresh, slack_ms, unsure, unsure_slack_ms, None if level < 0 else level)
        answer = rule(*counts) if slowness == 1.0 else rule.when_slow(slowness, *counts)
        replies.append(opinion_reply(answer, models))
    return replies


def opinion_reply(answer: object, models: dict[str, int]) -> tuple[Any, ...]:
    """An answer of the runtime as a program gives it; levels of a keep alone."""
    never = -np.inf, -np.inf
    if isinstance(answer, Keep):
        return KEEP, 0, 0, 0, answer.level, never
    if isinstance(answer, WaitForEither):
        return WAIT, 0, 0, 0, None, tuple(answer)
    if isinstance(answer, Drop):
        return DROP, 0, 0, 0, None, never
    assert isinstance(answer, Decision)
    return (SECOND if answer.second else RUN, models[answer.model], answer.batch, answer.run_as,
            None, never)


def programs_opinions(command: Sequence[str], asked: Sequence[Asked]) -> list[Any]:
    """The replies of a program to the same, in the same form."""
    replies = ask(command, asked)
    return [(kind, model, batch, run_as, level if kind == KEEP else None, (fresh_ms, unsure_ms))
            for (kind, model, batch, run_as, level, fresh_ms), unsure_ms in zip(
                replies[1::3].tolist(), replies["x"][2::3].tolist(), strict=True)]


def _counts(rng: np.random.Generator, size: int, most: int) -> Array:
    """Mostly from 0 to ``most``, now and then enormous or negative."""
    usual = rng.integers(0, most + 1, size)
    strange = rng.choice(np.array([-1, -(2**63), 2**63 - 1, 2**31, 2**32 + 1]), size)
    return np.where(rng.random(size) < 0.01, strange, usual)


def runtimes_replies(selectors: Sequence[Selector], questions: Array) -> Array:
    """What the runtime answers to lookups, in the form of a program's replies."""
    models = model_numbers(selectors)
    known: dict[int, tuple[Any, tuple[int, int, int, int, float]]] = {}
    replies = []
    for _, policy, queued, idle, slack_ms, _ in questions.tolist():
        try:
            answer = selectors[policy](queued, slack_ms, None if idle == ONLY_WORKER else idle)
        except ValueError:
            replies.append((ERROR, 0, 0, 0, 0, -np.inf))
            continue
        reply = known.get(id(answer))
        if reply is None:
            reply = known[id(answer)] = (answer, _reply(answer, models))
        replies.append((*reply[1][:4], 0, reply[1][4]))
    return np.array(replies, REPLY)


def _reply(answer: Any, models: dict[str, int]) -> tuple[int, int, int, int, float]:
    if isinstance(answer, Drop):
        return DROP, 0, 0, 0, -np.inf
    if isinstance(answer, Wait):
        return WAIT, 0, 0, 0, -np.inf if answer.below_ms is None else answer.below_ms
    assert isinstance(answer, Decision)
    return RUN, models[answer.model], answer.batch, answer.run_as, -np.inf


def model_numbers(selectors: Sequence[Selector]) -> dict[str, int]:
    """Index of each model in exported code."""
    names = dict.fromkeys(name for one in selectors for name in one.table.models)
    return {name: k for k, name in enumerate(names)}
