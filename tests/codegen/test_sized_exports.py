"""Exported policies for requests with a size decide as the specification and the runtime do."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from ramsis.errors import InvalidValueError
from ramsis.fields import Fields
from ramsis.runtime.sized import SizedQueue, SizedRule, SizedTables
from ramsis.serving.export.codegen.sources import sized_go_file, sized_header
from ramsis.sized.rule import RuleNumbers, RuleSpace
from scripts.sized import CELLS
from tests.codegen.programs import COMPILERS, HERE, WARNINGS, check_go, go_program, needs
from tests.reference import sized_lookup as twin
from tests.sized.test_rule import two_models

FILE = Path(__file__).parents[2] / "docs/conformance/sized-vectors.json"
VECTORS = json.loads(FILE.read_text())
WAITS, MEMBER, HOPELESS = range(3)
NO_BATCH, NO_QUESTION = -1, -2


class Question(NamedTuple):
    policy: int
    now_ms: float
    free_ms: float
    slowness: float
    deadline_ms: list[float]
    size: list[int]


class Answer(NamedTuple):
    model: int
    members: list[int]
    dropped: list[int]


def tables_of(document: Any) -> SizedTables:
    return SizedTables.from_fields(Fields(document, "vector"))


def vector_cases() -> Iterator[tuple[Question, Answer]]:
    for number, vector in enumerate(VECTORS["decisions"]):
        names = [model["name"] for model in vector["policy"]["models"]]
        for case in vector["cases"]:
            free_ms = inf if case["free_ms"] is None else case["free_ms"]
            yield (Question(number, case["now_ms"], free_ms, case["slowness"],
                            [due for _, due in case["waiting"]],
                            [size for size, _ in case["waiting"]]),
                   Answer(NO_BATCH if case["model"] is None else names.index(case["model"]),
                          case["members"], case["dropped"]))


def runtimes_answer(rule: SizedRule, question: Question) -> Answer:
    queue: SizedQueue[int] = SizedQueue(rule)
    queue.take_slowness(question.slowness)
    for number, (due, size) in enumerate(zip(question.deadline_ms, question.size, strict=True)):
        queue.add(number, size, due - rule.tables.slo_ms)
    decided = queue.decide(question.now_ms, question.free_ms)
    return Answer(decided.model, sorted(decided.members), sorted(decided.dropped))


def built(language: str, policies: Sequence[SizedTables], folder: Path) -> list[str]:
    loads = [(float(load_qps), tables) for load_qps, tables in enumerate(policies, 1)]
    if language == "go":
        return go_program(sized_go_file(loads), folder, HERE / "sized_driver.go")
    compiler = COMPILERS[language]
    needs(compiler[0])
    (folder / "policies.h").write_text(sized_header(loads))
    program = folder / "program"
    ran = subprocess.run([*compiler, f"-I{folder}", HERE / "sized_driver.c", "-o", program, "-lm"],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return [str(program)]


def as_bytes(questions: Sequence[Question]) -> bytes:
    return b"".join(
        np.array([one.policy, len(one.size)], "i8").tobytes()
        + np.array([one.now_ms, one.free_ms, one.slowness, *one.deadline_ms]).tobytes()
        + np.array(one.size, "i8").tobytes() for one in questions)


def ask(command: Sequence[str], questions: Sequence[Question]) -> list[Answer]:
    """The answers of a program; its counts are those of the fates."""
    ran = subprocess.run(command, input=as_bytes(questions), capture_output=True)
    assert ran.returncode == 0, ran.stderr.decode()
    answers, at = [], 0
    for question in questions:
        model, members, dropped = np.frombuffer(ran.stdout, "i8", 3, at).tolist()
        fate = np.frombuffer(ran.stdout, "u2", len(question.size), at + 32)
        at += 32 + 2 * len(question.size)
        if model != NO_QUESTION:
            assert (np.count_nonzero(fate == MEMBER), np.count_nonzero(fate == HOPELESS)) == (
                members, dropped)
        answers.append(Answer(model, np.flatnonzero(fate == MEMBER).tolist(),
                              np.flatnonzero(fate == HOPELESS).tolist()))
    assert at == len(ran.stdout)
    return answers


def queues(tables: SizedTables, policy: int, count: int, waiting: int) -> list[Question]:
    """Queues at random, half of them of slow service or with other workers."""
    rng, result = np.random.default_rng(policy), []
    for _ in range(count):
        now_ms = float(rng.uniform(0.0, 1e7))
        due = np.sort(now_ms + rng.uniform(0.0, tables.slo_ms, waiting))
        size = np.minimum(np.rint(rng.lognormal(2.2, 1.9, waiting)) + 2, tables.edges[-1])
        free_ms = inf if tables.workers == 1 else float(rng.choice([0.0, rng.uniform(0.0, 20.0)]))
        result.append(Question(policy, now_ms, free_ms, float(rng.choice([1.0, 1.3, 2.5])),
                               due.tolist(), size.astype(int).tolist()))
    return result


def real_tables() -> list[SizedTables]:
    problems = [CELLS["cpu"].problem(), CELLS["gpu"].problem(), CELLS["gpu"].problem(workers=3),
                two_models(True), two_models(False)]
    return [RuleSpace(problem).tables(RuleNumbers()) for problem in problems]


def test_the_vectors_are_those_of_the_twin():
    assert FILE.read_text() == twin.vectors_text()
    assert sum(len(vector["cases"]) for vector in VECTORS["decisions"]) > 1000


def test_every_vector_holds_in_the_runtime():
    rules = [SizedRule(tables_of(vector["policy"])) for vector in VECTORS["decisions"]]
    for question, answer in vector_cases():
        assert runtimes_answer(rules[question.policy], question) == answer, question


@pytest.mark.parametrize("law", ["padded", "packed"])
def test_slack_of_the_whole_deadline_and_beyond_is_in_the_last_bin(law):
    """The bins of 78 ms are of whole microseconds: 78 ms of slack are where a seventh would be."""
    rng = Random(7)
    policy = twin.policy(rng, law, 2, 2) | {"slo_ms": 78.0}
    rule = SizedRule(tables_of(policy))
    for trial in range(200):
        now_ms = float(rng.randrange(1000))
        slacks_ms = [78.0] if trial % 2 else [78.0, 90.0, rng.uniform(0.0, 78.0)]
        due = sorted(now_ms + rng.choice(slacks_ms) + 1e-5 * n for n in range(1 + trial % 12))
        size = [rng.randrange(1, 101) for _ in due]
        case = {"now_ms": now_ms, "free_ms": 5.0, "slowness": 1.0,
                "waiting": list(zip(size, due, strict=True))}
        expected = twin.decide(policy, case)
        answer = runtimes_answer(rule, Question(0, now_ms, 5.0, 1.0, due, size))
        names = [model["name"] for model in policy["models"]]
        model = NO_BATCH if expected["model"] is None else names.index(expected["model"])
        assert answer == Answer(model, expected["members"], expected["dropped"])


@pytest.fixture(scope="module", params=["c", "c++", "sanitised", "go"])
def program(request, tmp_path_factory):
    """With the policies of the vectors."""
    return built(request.param, [tables_of(vector["policy"]) for vector in VECTORS["decisions"]],
                 tmp_path_factory.mktemp("program"))


def test_every_vector_holds_in_exported_code(program):
    cases = list(vector_cases())
    answers = ask(program, [question for question, _ in cases])
    for (question, expected), answer in zip(cases, answers, strict=True):
        assert answer == expected, question


@pytest.fixture(scope="module", params=["c", "go"])
def real(request, tmp_path_factory):
    """Tables of real policies, and a program with them."""
    tables = real_tables()
    return tables, built(request.param, tables, tmp_path_factory.mktemp("real"))


def test_queues_at_random_are_decided_as_by_the_runtime(real):
    tables, command = real
    questions = [question for number, one in enumerate(tables) for waiting in (7, 60, 250)
                 for question in queues(one, number, 30, waiting)]
    rules = [SizedRule(one) for one in tables]
    for question, answer in zip(questions, ask(command, questions), strict=True):
        assert answer == runtimes_answer(rules[question.policy], question), question


def test_what_is_no_question_has_no_answer(program):
    good = Question(0, 100.0, inf, 1.0, [150.0, 160.0], [3, 90])
    wrong = [good._replace(**{name: value}) for name, values in {
        "now_ms": (nan, inf, 1e13), "free_ms": (nan, -1.0), "slowness": (nan, 0.5, inf),
        "deadline_ms": ([150.0, 149.0], [nan, 1.0], [0.0, inf]), "size": ([0, 3], [3, 101]),
    }.items() for value in values]
    answers = ask(program, [good, *wrong, good._replace(deadline_ms=[], size=[])])
    assert answers[0].model == 0
    assert {answer.model for answer in answers[1:-1]} == {NO_QUESTION}
    assert answers[-1] == Answer(NO_BATCH, [], [])


def test_a_decision_takes_microseconds_with_100_waiting(real):
    """2 to 5 µs in C, 5 to 10 in Go on a quiet core; others may share it here."""
    tables, command = real
    for number in range(2):
        ran = subprocess.run([*command, "time"], check=True, capture_output=True,
                             input=as_bytes(queues(tables[number], number, 40, 100)))
        assert 0 < float(ran.stdout) < 20_000


def test_go_finds_nothing_to_say_about_the_package(tmp_path):
    built("go", [tables_of(vector["policy"]) for vector in VECTORS["decisions"]], tmp_path)
    check_go(tmp_path)


@pytest.mark.parametrize("standard", [
    "gcc -x c -std=c99 -pedantic -Wconversion -Wshadow", "g++ -x c++ -std=c++20 -pedantic"])
def test_the_header_compiles_alone_and_beside_another(standard, tmp_path):
    needs(standard.split()[0])
    (tables, *_) = [tables_of(vector["policy"]) for vector in VECTORS["decisions"]]
    for prefix in ("ramsis", "other"):
        (tmp_path / f"{prefix}.h").write_text(sized_header([(1.0, tables)], prefix))
    (tmp_path / "both.c").write_text(
        '#include "ramsis.h"\n#include "other.h"\n'
        "int main(void) { return other_sized_for(1) == NULL || ramsis_sized_for(1) == NULL; }\n")
    for name in ("ramsis.h", "both.c"):
        subprocess.run([*standard.split(), *WARNINGS, "-c", tmp_path / name, "-o",
                        tmp_path / "both.o"], check=True, cwd=tmp_path)


def test_equal_tables_are_written_once():
    tables = tables_of(VECTORS["decisions"][0]["policy"])
    assert sized_header([(1.0, tables), (2.0, tables)]).count("_times_ms_") == sized_header(
        [(1.0, tables)]).count("_times_ms_") + 1


def test_prefixes_that_are_no_identifiers_are_refused():
    with pytest.raises(InvalidValueError, match=r"^prefix: not an identifier"):
        sized_header([(1.0, tables_of(VECTORS["decisions"][0]["policy"]))], "9a")
