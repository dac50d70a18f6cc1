"""Exported code answers as the specification and the runtime do, in every language."""

import math
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from ramsis.errors import InputFileError, InvalidValueError
from ramsis.runtime import (
    DISPATCHES,
    Level,
    LoadMonitor,
    PolicySet,
    Selector,
    Station,
    set_of_selectors,
)
from ramsis.serving.export.codegen.sources import c_header, go_file
from tests.codegen import programs
from tests.codegen.programs import (
    CHOOSE,
    DROP,
    ERROR,
    HERE,
    IN_SYSTEM,
    JOIN,
    KEEP,
    LANGUAGES,
    LEVEL,
    LOAD,
    LOOKUP,
    MONITOR,
    NAME,
    ONLY_WORKER,
    OPINION,
    OTHER_WAIT,
    PRESENT_LEVEL,
    RECORD,
    ROUTE,
    ROUTER,
    RUN,
    SECOND,
    SLOW,
    TERMS,
    UNSURE,
    WAIT,
    C,
    as_set,
    ask,
    built,
    needs,
    selector,
)
from tests.reference import lookup as twin
from tests.slow import slow_after

VECTORS = twin.vectors()


WITHOUT_NUMBERS = slow_after(4, sorted(
    LANGUAGES, key=lambda name: name in ("extended precision", "fast math")))
"""Where no number is worked out, how a compiler does that changes little."""


@pytest.fixture(scope="module", params=LANGUAGES)
def language(request):
    """Each way to compile exported code."""
    return str(request.param)


@pytest.fixture(scope="module")
def program(language, tmp_path_factory):
    """With policies of all kinds, those of the vectors first."""
    return built(language, as_set(programs.samples()), tmp_path_factory.mktemp("program"))


def expected_reply(case: dict[str, Any], models: dict[str, int]) -> tuple[Any, ...]:
    """A case's answer as a program gives it."""
    never = -math.inf
    if "error" in case:
        return (ERROR, 0, 0, 0, 0, never)
    if "drop" in case:
        return (DROP, 0, 0, 0, 0, never)
    if "wait_below_ms" in case:
        below_ms = case["wait_below_ms"]
        return (WAIT, 0, 0, 0, 0, never if below_ms is None else below_ms)
    return (RUN, models[case["model"]], case["batch"], case["run_as"], 0, never)


def test_every_lookup_vector_holds(program):
    models = programs.model_numbers(programs.samples())
    cases = [(k, case) for k, one in enumerate(VECTORS["lookups"]) for case in one["cases"]]
    questions = [(LOOKUP, k, case["queued"], case.get("idle", ONLY_WORKER),
                  float(case["slack_ms"]), 0.0) if "slowness" not in case
                 else (SLOW, k, case["queued"], case["idle"],
                       case["slack_ms"] / case["slowness"], case["slowness"])
                 for k, case in cases]
    replies = ask(program, questions).tolist()
    for (k, case), reply in zip(cases, replies, strict=True):
        assert reply == expected_reply(case, models), (k, case)
    assert len(replies) > 4000


def test_every_dispatch_vector_holds(program):
    questions: list[programs.Asked] = []
    expected = []
    for vector in VECTORS["dispatch"]:
        rule = list(DISPATCHES).index(vector["dispatch"])
        questions.append((ROUTER, rule, vector["queues"], 0, 0.0, 0.0))
        for step in vector["steps"]:
            questions += [(IN_SYSTEM, queue, held, 0, 0.0, 0.0)
                          for queue, held in enumerate(step["in_system"])]
            expected.append((len(questions), step["joins"]))
            questions.append((JOIN, 0, 0, 0, 0.0, 0.0))
    replies = ask(program, questions)
    assert [(at, replies["kind"][at]) for at, _ in expected] == expected


def test_every_load_monitor_vector_holds(program):
    for vector in VECTORS["monitors"]:
        questions: list[programs.Asked] = [(MONITOR, 64, 0, 0, vector["window_ms"], 0.0)]
        for step in vector["steps"]:
            if "record_ms" in step:
                questions.append((RECORD, step["count"], 0, 0, float(step["record_ms"]), 0.0))
            else:
                questions.append((LOAD, 0, 0, 0, float(step["load_at_ms"]), 0.0))
        first, *replies = ask(program, questions)
        assert first["kind"] == 0
        for step, reply in zip(vector["steps"], replies, strict=True):
            assert reply["kind"] == (-1 if "error" in step else 0), step
            assert reply["x"] == pytest.approx(step.get("load_qps", 0.0), rel=1e-12), step


SLOW_SET = max(range(len(VECTORS["sets"])), key=lambda k: len(VECTORS["sets"][k]["cases"]))


@pytest.mark.parametrize(("language", "k"), [
    *((language, SLOW_SET) for language in LANGUAGES),
    *((language, k) for language in ("c", "go") for k in range(len(VECTORS["sets"]))
      if k != SLOW_SET)])
def test_every_policy_set_vector_holds(language, k, tmp_path):
    """In all languages the one that knows slowness, whose numbers are worked out."""
    vector = VECTORS["sets"][k]
    policies = set_of_selectors(
        selector({**twin.POLICY, "load_qps": level["load_qps"], "slowness": level["slowness"],
                  "arrivals": level["arrivals"]})
        for level in vector["levels"])
    order = {label: sorted((level["slowness"], level["load_qps"]) for level in vector["levels"]
                           if level["label"] == label) for label in policies.processes}
    labels = [*policies.processes, "weibull"]
    command = [*built(language, policies, tmp_path), *labels]
    replies = ask(command, [
        (CHOOSE, -1 if case["process"] is None else labels.index(case["process"]), 0, 0,
         float(case["load_qps"]), float(case["slowness"])) for case in vector["cases"]])
    for case, reply in zip(vector["cases"], replies, strict=True):
        expected: tuple[float, ...] = (-1, 0, 0, 0, 0.0)
        if "error" not in case:
            levels = order[case["process"] or policies.processes[0]]
            expected = (0, levels.index((case["level_slowness"], case["level_qps"])),
                        case["above_highest"], case["calls_back"], case["slowness_left"])
        assert tuple(reply[["kind", "model", "batch", "passed", "x"]]) == expected, case


def station_sets() -> Iterator[tuple[PolicySet[Selector], list[dict[str, Any]]]]:
    """A level for each list of shares, which one class has, and half of them in another class."""
    one = selector(twin.CENTRAL)
    lists = [list(x) for x in {tuple(case["shares"]): 0 for case in VECTORS["stations"]}]
    levels = []
    for k, shares in enumerate(lists):
        stations = tuple(Station(f"s{i}", ("a", "b"), i + 1, 1.0, {100.0: share} | (
            {40.0: share} if i else {}), one) for i, share in enumerate(shares))
        levels.append(Level(k + 1.0, "poisson", stations, {}))
    yield PolicySet(levels, {"a": 2, "b": 3}, {40.0: 0.5, 100.0: 0.5}), [
        {**case, "level": lists.index(case["shares"])} for case in VECTORS["stations"]]


def test_every_station_vector_holds(language, tmp_path):
    for policies, cases in station_sets():
        command = built(language, policies, tmp_path)
        replies = ask(command, [(ROUTE, case["level"], 0, 0, 100.0, case["uniform"])
                                for case in cases])
        assert replies["kind"].tolist() == [case["station"] for case in cases]
        assert replies["batch"].tolist() == [case["station"] + 1 for case in cases]
        # Classes that some stations do not serve, and numbers that are none.
        asked = [(level, slo_ms, u) for level in range(3) for slo_ms in (40.0, 100.0, 41.0)
                 for u in (0.0, 0.3, 0.9, math.nextafter(1.0, 0.0), 1.0, 7.0, -1.0)]
        replies = ask(command, [(ROUTE, level, 0, 0, slo_ms, u) for level, slo_ms, u in asked])
        for (level, slo_ms, u), reply in zip(asked, replies, strict=True):
            try:
                name = policies.levels[level].route(slo_ms, u).name
            except InvalidValueError:
                name = "s-1"
            assert f"s{reply['kind']}" == name


@cache
def random_lookups(count: int, seed: int) -> tuple[Any, Any]:
    """Random questions, and the answers of the runtime."""
    selectors = programs.samples()
    questions = programs.random_questions(selectors, count, np.random.default_rng(seed))
    return questions, programs.runtimes_replies(selectors, questions)


def compare_random_lookups(program: list[str], count: int, *seeds: int) -> None:
    """Put the same random questions to a program and to the runtime."""
    kinds: set[int] = set()
    for seed in seeds:
        questions, expected = random_lookups(count, seed)
        replies = ask(program, questions)
        different = np.flatnonzero(replies != expected)
        assert different.size == 0, (questions[different[0]], replies[different[0]],
                                     expected[different[0]])
        kinds |= set(replies["kind"].tolist())
    assert kinds == {ERROR, RUN, DROP, WAIT}


def test_random_lookups_are_the_runtimes(program):
    compare_random_lookups(program, 50_000, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "go"])
def test_millions_of_random_lookups_are_the_runtimes(name, tmp_path):
    compare_random_lookups(built(name, as_set(programs.samples()), tmp_path), 250_000,
                           *range(2, 14))


@pytest.fixture(scope="module")
def opinions(language, tmp_path_factory):
    """With policies that have second opinions, those of the vectors first."""
    return built(language, as_set(programs.opinion_samples()), tmp_path_factory.mktemp("opinions"))


def test_every_vector_of_second_opinions_holds(opinions):
    models = programs.model_numbers(programs.opinion_samples())
    for k, vector in enumerate(VECTORS["second_opinions"]):
        questions: list[programs.Asked] = []
        for case in vector["cases"]:
            slowness = case.get("slowness", 1.0)
            questions += [
                (TERMS, case.get("kept_at", PRESENT_LEVEL), 0, 0, slowness, 0.0),
                (OPINION, k, case["fresh"], case["unsure"], float(case["slack_ms"]) / slowness,
                 float(case["unsure_slack_ms"]) / slowness), (OTHER_WAIT, 0, 0, 0, 0.0, 0.0)]
        replies = programs.programs_opinions(opinions, questions)
        for case, reply in zip(vector["cases"], replies, strict=True):
            assert reply == expected_opinion(case, models), (k, case)
        questions = [(UNSURE, k, case["level"], models[case["model"]], float(case["confidence"]),
                      0.0) if "is_unsure" in case
                     else (LEVEL, k, case["fresh"], case["unsure"], 0.0, 0.0)
                     for case in vector["unsure"]]
        assert ask(opinions, questions)["kind"].tolist() == [
            case.get("is_unsure", case["level"]) for case in vector["unsure"]]


def expected_opinion(case: dict[str, Any], models: dict[str, int]) -> tuple[Any, ...]:
    """The answer of a vector of second opinions as a program gives it."""
    never = -math.inf, -math.inf
    if "keep" in case:
        return KEEP, 0, 0, 0, case["level"], never
    if "drop" in case:
        return DROP, 0, 0, 0, None, never
    if "batch" in case:
        return (SECOND if "second" in case else RUN, models[case["model"]], case["batch"],
                case["run_as"], None, never)
    return WAIT, 0, 0, 0, None, tuple(
        -math.inf if case[name] is None else case[name]
        for name in ("wait_fresh_ms", "wait_unsure_ms"))


@cache
def random_opinions(count: int, seed: int) -> tuple[Any, Any]:
    """Random questions about second opinions, and the answers of the runtime."""
    selectors = programs.opinion_samples()
    asked = programs.random_opinions(selectors, count, np.random.default_rng(seed))
    return asked, programs.runtimes_opinions(selectors, asked)


def compare_random_opinions(program: list[str], count: int, seed: int) -> None:
    """Put the same random questions about second opinions to a program and to the runtime."""
    asked, expected = random_opinions(count, seed)
    replies = programs.programs_opinions(program, asked)
    for question, reply, other in zip(asked[1::3], replies, expected, strict=True):
        assert reply == other, question
    assert {reply[0] for reply in replies} == {ERROR, RUN, DROP, WAIT, SECOND, KEEP}


def test_random_second_opinions_are_the_runtimes(opinions):
    compare_random_opinions(opinions, 4_000, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["c", "go"])
def test_many_random_second_opinions_are_the_runtimes(name, tmp_path):
    compare_random_opinions(built(name, as_set(programs.opinion_samples()), tmp_path), 100_000,
                            seed=2)


def test_levels_and_unsure_answers_are_the_runtimes(opinions):
    selectors, rng = programs.opinion_samples(), np.random.default_rng(6)
    models = programs.model_numbers(selectors)
    questions: list[programs.Asked] = []
    expected: list[int] = []
    for k, one in enumerate(selectors):
        for fresh, unsure in rng.integers(-1, 40, (40, 2)).tolist():
            questions.append((LEVEL, k, fresh, unsure, 0.0, 0.0))
            expected.append(-1 if one.cascade is None or fresh < 0 or unsure < 0
                            else one.cascade.level(fresh, unsure))
        levels = 1 if one.cascade is None else len(one.cascade.table.gather)
        for level, (name, model) in [(level, pair) for level in range(-1, levels + 1)
                                     for pair in (*models.items(), ("none", -1), ("none", 99))]:
            for confidence in (-math.inf, -1.5, 0.125, 0.25, 0.3, 0.9, 1e300, math.inf, math.nan):
                questions.append((UNSURE, k, level, model, confidence, 0.0))
                expected.append(int(one.cascade is not None and 0 <= level < levels
                                    and one.cascade.unsure(level, name, confidence)))
    assert ask(opinions, questions)["kind"].tolist() == expected


def test_random_arrivals_have_the_runtimes_load(program):
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(2.0, 4000) * (rng.random(4000) < 0.9)) - 500.0
    monitor = LoadMonitor(100.0)
    questions: list[programs.Asked] = [(MONITOR, 400, 0, 0, 100.0, 0.0)]
    loads = []
    for now_ms, count in zip(times.tolist(), rng.integers(1, 4, 4000).tolist(), strict=True):
        monitor.record(now_ms, count)
        loads.append(monitor.load_qps(now_ms))
        questions += [(RECORD, count, 0, 0, now_ms, 0.0), (LOAD, 0, 0, 0, now_ms, 0.0)]
    assert ask(program, questions)["x"][2::2].tolist() == loads


@cache
def monitored(cells: int) -> tuple[list[programs.Asked], Any, Any]:
    """Arrivals at random, and the least and the highest load that a monitor may tell at each."""
    rng = np.random.default_rng(4)
    times = np.cumsum(rng.exponential(0.1, 30_000)).tolist()
    exact, longer = LoadMonitor(100.0), LoadMonitor(100.0 * (1 + 4 / cells))
    questions: list[programs.Asked] = [(MONITOR, cells, 0, 0, 100.0, 0.0)]
    bounds = []
    for now_ms in times:
        exact.record(now_ms)
        longer.record(now_ms)
        # What a longer window holds, as the load of this one.
        span_ms = min(longer.window_ms, max(now_ms - times[0], 0.1 * longer.window_ms))
        own_ms = min(100.0, max(now_ms - times[0], 10.0))
        bounds.append((exact.load_qps(now_ms), longer.load_qps(now_ms) * span_ms / own_ms))
        questions += [(RECORD, 1, 0, 0, now_ms, 0.0), (LOAD, 0, 0, 0, now_ms, 0.0)]
    low, high = np.array(bounds).T
    return questions, low, high


@pytest.mark.parametrize("cells", [8, 50])
def test_a_monitor_with_few_cells_is_never_too_low_and_little_too_high(program, language, cells):
    questions, low, high = monitored(cells)
    loads = ask(program, questions)["x"][2::2]
    assert (loads >= low * (1 - 1e-12)).all()
    assert (loads <= high * (1 + 1e-12)).all()
    assert (loads == low).all() == (language == "go")  # whose monitor has room for all


def test_a_monitor_refuses_what_it_cannot_be_made_of(program):
    for window_ms, cells in ((0.0, 64), (-1.0, 64), (math.inf, 64), (math.nan, 64)):
        assert ask(program, [(MONITOR, cells, 0, 0, window_ms, 0.0)])["kind"] == [-1]


def test_counts_that_pass_64_bits_are_refused(program):
    most = 2**63 - 1
    replies = ask(program, [(MONITOR, 8, 0, 0, 100.0, 0.0), (RECORD, most, 0, 0, 1.0, 0.0),
                            (RECORD, most, 0, 0, 2.0, 0.0), (RECORD, 2, 0, 0, 3.0, 0.0),
                            (RECORD, 1, 0, 0, 3.0, 0.0), (LOAD, 0, 0, 0, 102.5, 0.0)])
    assert replies["kind"].tolist() == [0, 0, 0, -1, 0, 0]
    assert replies["x"][-1] == 1000.0 / 100.0


HOSTILE = ['say "hi"', "back\\slash", "*/ end", "/* begin", "// line", "tri ??/ graph??'",
           "100 %s %n", "\\", '"', "é ü 漢字 😀", "'", "`", "${x}", "#define X", "@tables@",
           "ramsis_x RAMSIS_X", "x" * 3000, "\\x41", "a\\", "7\\0", "_¡9"]


@pytest.mark.parametrize("language", WITHOUT_NUMBERS, indirect=True)
def test_names_of_models_come_through_whatever_they_are(language, tmp_path):
    """Of a policy with a single bin and level, too, which needs no empty arrays."""
    models = [{**twin.POLICY["models"][0], "name": name} for name in HOSTILE]
    document = {**twin.POLICY, "models": models, "late": "drop",
                "arrivals": {"process": "p*/\"\\", "kind": "x\n\" ??/ %"},
                "table": {**twin.POLICY["table"], "rows": [[0, 2]], "index": [[0]],
                          "axes": {"idle": [0, 1], "queued": [0, 1], "slack_ms": [0]},
                          "actions": [[0, 1], [1, 1], [2, 1]], "longer_queue": -3}}
    command = built(language, set_of_selectors([selector(document)]), tmp_path)
    replies = ask(command, [(LOOKUP, 0, n, 1, s, 0.0) for n in (1, 9) for s in (-5.0, 0.0, 1e9)])
    assert {tuple(reply) for reply in replies.tolist()} == {(RUN, 2, 1, 1, 0, -math.inf)}
    for k, name in enumerate(HOSTILE):
        data = name.encode()
        replies = ask(command, [(NAME, k, at, 0, 0.0, 0.0) for at in range(len(data))])
        assert bytes(replies["kind"].tolist()) == data
    assert ask(command, [(NAME, k, 0, 0, 0.0, 0.0) for k in (-1, len(HOSTILE))])[
        "kind"].tolist() == [-1, -1]
    label = "p*/\"\\:kind=x\n\" ??/ %"
    assert ask([*command, label], [(CHOOSE, 0, 0, 0, 1.0, 1.0)])["kind"] == [0]


@pytest.mark.parametrize("standard", [
    "gcc -x c -std=c99 -pedantic -Wconversion -Wshadow", "gcc -x c -std=c17",
    "g++ -x c++ -std=c++20 -pedantic"])
def test_the_header_compiles_alone_and_beside_another(standard, tmp_path):
    needs(standard.split()[0])
    for prefix in ("ramsis", "other"):
        header = c_header(as_set(programs.samples()), prefix)
        (tmp_path / f"{prefix}.h").write_text(header)
    (tmp_path / "both.c").write_text(
        '#include "ramsis.h"\n#include "other.h"\n#include "ramsis.h"\n'
        "int main(void) { return other_choose(NULL, 1, 1).level == NULL\n"
        "                      || ramsis_choose(NULL, 1, 1).level == NULL; }\n")
    for name in ("ramsis.h", "both.c"):
        subprocess.run([*standard.split(), *programs.WARNINGS, "-c", tmp_path / name, "-o",
                        tmp_path / "both.o"], check=True, cwd=tmp_path)


def test_valgrind_finds_nothing(tmp_path):
    needs("valgrind")
    selectors = programs.samples()
    command = built("c", as_set(selectors), tmp_path)
    questions = programs.random_questions(selectors, 5_000, np.random.default_rng(5))
    monitor = [(MONITOR, 8, 0, 0, 10.0, 0.0), *((RECORD, 1, 0, 0, k / 8, 0.0)
                                                for k in range(1000))]
    under = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full",
             "--errors-for-leak-kinds=all", *command]
    ask(under, questions)
    ask(under, monitor)
    opinions = programs.opinion_samples()
    command = built("c", as_set(opinions), tmp_path / "opinions")
    ask([*under[:-1], *command], programs.random_opinions(opinions, 500, np.random.default_rng(7)))


def test_go_finds_nothing_to_say_about_the_package(tmp_path):
    built("go", as_set(programs.samples()), tmp_path)
    programs.check_go(tmp_path)
    selectors = [*programs.samples(), *programs.opinion_samples()]
    command = programs.go_program(go_file(as_set(selectors)), tmp_path, HERE / "speed.go")
    ran = subprocess.run(command, check=True, capture_output=True)
    assert all(0 < ns < 1000 for ns in map(float, ran.stdout.split()))


def test_a_lookup_takes_less_than_a_microsecond(tmp_path):
    """It takes some twenty nanoseconds; the rest is for a busy machine."""
    needs("gcc")
    (tmp_path / "policies.h").write_text(c_header(
        as_set([*programs.samples(), *programs.opinion_samples()])))
    subprocess.run([*C, f"-I{tmp_path}", HERE / "speed.c", "-o", tmp_path / "speed"], check=True)
    ran = subprocess.run([tmp_path / "speed"], check=True, capture_output=True, text=True)
    assert all(0 < ns < 1000 for ns in map(float, ran.stdout.split()))


def test_prefixes_and_packages_that_are_no_identifiers_are_refused():
    policies = as_set([selector(twin.POLICY)])
    for name in ("", "9a", "Ab", "a-b", "a b", "é", "a" * 41, "_a", "a\n"):
        with pytest.raises(InvalidValueError, match=r"^prefix: not an identifier"):
            c_header(policies, name)
        with pytest.raises(InvalidValueError, match=r"^package: not an identifier"):
            go_file(policies, name)
    for word in ("int", "class"):
        with pytest.raises(InvalidValueError, match=f"got '{word}'"):
            c_header(policies, word)
    for word in ("func", "main"):
        with pytest.raises(InvalidValueError, match=f"got '{word}'"):
            go_file(policies, word)


def test_a_name_that_c_cannot_hold_is_refused():
    document = {**twin.POLICY, "arrivals": {"process": "p", "kind": "a\0b"}}
    with pytest.raises(InputFileError, match="a name that C cannot hold"):
        c_header(set_of_selectors([selector(document)]))
