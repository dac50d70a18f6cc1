"""Random scenarios under random schedulers, and what must hold of every run.

python -m tests.sim.cluster.random_scenarios 1000
"""

import sys
from collections import Counter
from typing import Any

import numpy as np

from ramsis.bounds import scenario_bound
from ramsis.scenario import Scenario, draw_requests, scenario_from_document
from ramsis.sim import Engine, Run, Scheduler, measure
from ramsis.sim.engine.requests import DROPPED


def random_scenario(rng: np.random.Generator) -> Scenario:
    """Some worker types, models and streams."""
    types = [_worker_type(rng, i) for i in range(rng.integers(1, 4))]
    models = [_model(rng, i, types) for i in range(rng.integers(1, 5))]
    streams: list[dict[str, Any]] = []
    for i in range(rng.integers(1, 4)):
        streams.append(_stream(rng, i, models, types))
        if i and rng.random() < 0.3:
            streams[-1]["after"] = f"s{rng.integers(i)}"
    return scenario_from_document({
        "format": "ramsis.scenario/1", "name": "random", "duration_s": 1.0,
        "worker_types": types, "models": models, "streams": streams})


def _worker_type(rng: np.random.Generator, i: int) -> dict[str, Any]:
    count = int(rng.integers(1, 4))
    return {"name": f"t{i}", "count": count, "memory_mb": float(rng.choice([100, 250, 600])),
            "max_models": int(rng.integers(1, 4)), "lanes": int(rng.integers(1, 4)),
            "cores": int(rng.integers(1, 5)), "loading": str(rng.choice(["beside", "blocking"])),
            "loads_at_a_time": int(rng.integers(1, 3)), "active": int(rng.integers(1, count + 1)),
            "scale_up_ms": float(rng.choice([0, 20])), "load_mb_per_s": 5000.0}


def _model(rng: np.random.Generator, i: int, types: list[dict[str, Any]]) -> dict[str, Any]:
    chosen = [one for one in types if rng.random() < 0.7] or types[:1]
    sizes = (1, 2, 4)[: rng.integers(1, 4)]
    latency = [{"worker_type": one["name"], "batch": size,
                **({"latency_ms": 5.0 * size**0.7} if rng.random() < 0.7
                   else {"quantiles_ms": [3.0, 6.0, 9.0]})}
               for one in chosen for size in sizes]
    most_mb = max(one["memory_mb"] for one in chosen)
    model = {"name": f"m{i}", "copies": int(rng.integers(1, 3)),
             "memory_mb": float(rng.choice([0.2, 0.5, 1.0])) * most_mb, "latency": latency}
    if rng.random() < 0.3:
        model["first_load_ms"] = 40.0
    if rng.random() < 0.3:
        model["inference"] = {"batching": str(rng.choice(["continuous", "static"])),
                              "output_tokens": [1.0, 3.0]}
    if rng.random() < 0.3:
        model["family"] = "f"
    return model


def _stream(
    rng: np.random.Generator, i: int, models: list[dict[str, Any]], types: list[dict[str, Any]]
) -> dict[str, Any]:
    workload = [{"load_qps": 60.0}, {"users": 3, "think_ms": 4.0}, {"minutes": [2000]},
                {"users": 2, "requests": 7}, {"times_ms": [0.0, 3.0, 3.0, 40.0]}]
    stream: dict[str, Any] = {
        "name": f"s{i}", "model": str(rng.choice([one["name"] for one in models])),
        "slo_ms": float(rng.choice([20, 100])), "workload": workload[rng.integers(5)]}
    if rng.random() < 0.3:
        most = max(one["cores"] for one in types)
        stream |= {"pre_ms": 1.0, "post_ms": 2.0, "network_ms": 3.0,
                   "cores": int(rng.integers(1, most + 1))}
    return stream


class Chance(Scheduler):
    """Does at each event some of what can be done, at random, and keeps books of its own."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.rng = np.random.default_rng(engine.seed)
        self.come: list[int] = []
        self.to_run: list[int] = []
        self.groups: dict[int, tuple[int, int]] = {}
        self.timers = 0

    def on_start(self) -> None:
        self.act()

    def on_arrival(self, request: int) -> None:
        stream = self.engine.world.streams[self.engine.requests.stream[request]]
        (self.come if stream.cores else self.to_run).append(request)
        self.act()

    def on_ready(self, request: int) -> None:
        self.to_run.append(request)
        self.act()

    def on_end(self, worker: int, batch: int) -> None:
        self.act()

    def on_processed(self, request: int) -> None:
        self.act()

    def on_loaded(self, worker: int, model: int) -> None:
        assert model in self.engine.workers.loaded[worker]
        self.act()

    def on_scaled(self, worker: int) -> None:
        self.act()

    def on_timer(self, token: object) -> None:
        self.act()

    def act(self) -> None:
        engine, workers, rng = self.engine, self.engine.workers, self.rng
        for worker, held in enumerate(workers.loaded):
            assert not held & set(workers.loading[worker])
            used = sum(workers.model_mb[m] for m in (*held, *workers.loading[worker]))
            assert used <= workers.memory_mb[worker] * (1 + 1e-9)
            assert len(held) + len(workers.loading[worker]) <= workers.max_models[worker]
            assert 0 <= workers.free_cores[worker] <= workers.cores[worker]
        worker = int(rng.integers(len(workers)))
        model = int(rng.integers(len(engine.site.models)))
        if model in workers.loaded[worker]:
            if rng.random() < 0.1 and not engine.runs_now(worker, model):
                engine.unload(worker, model)
        elif (workers.may_load(worker) and workers.fits(worker, model)
                and engine.times.runs(workers.type[worker], model)
                and model not in workers.loading[worker]):
            engine.load(worker, model)
        if rng.random() < 0.05:
            engine.scale_up(int(rng.integers(len(engine.world.types))))
        idle = not (workers.running[worker] or workers.loading[worker]
                    or workers.free_cores[worker] < workers.cores[worker])
        if rng.random() < 0.02 and idle and workers.status[worker] == "active" and not (
                engine._at_machine):
            engine.scale_down(worker)
        self.process()
        self.run_some()
        if rng.random() < 0.05 and self.to_run:
            engine.drop(self.to_run.pop())
        if rng.random() < 0.3 and self.timers < 2000:
            self.timers += 1
            engine.wake_at(engine.now_ms + float(rng.random() * 5.0))

    def process(self) -> None:
        engine, workers = self.engine, self.engine.workers
        for request in list(self.come):
            stream = engine.world.streams[engine.requests.stream[request]]
            machine = int(self.rng.integers(len(workers)))
            if (workers.status[machine] == "active"
                    and workers.free_cores[machine] >= stream.cores):
                active = [w for w, status in enumerate(workers.status) if status == "active"]
                engine.process(request, machine, int(self.rng.choice(active)))
                self.come.remove(request)

    def run_some(self) -> None:
        engine, workers, rng = self.engine, self.engine.workers, self.rng
        for request in list(self.to_run):
            if request not in self.to_run:  # it went with another
                continue
            model = engine.requests.model[request]
            where = engine._at_machine.get(request, (0, -1))[1]
            for worker in [where] if where >= 0 else rng.permutation(len(workers)).tolist():
                if model not in workers.loaded[worker]:
                    continue
                if self.joined(worker, model, request):
                    self.to_run.remove(request)
                    break
                if workers.free_lanes[worker] > 0:
                    others = [r for r in self.to_run if r != request and (
                        engine.requests.model[r] == model) and r not in engine._at_machine]
                    most = engine.times.sizes[workers.type[worker]][model][-1]
                    batch = [request, *others[: int(rng.integers(0, most))]]
                    number = engine.run(worker, model, batch)
                    if engine.times.continuous[engine.times.kind[model]]:
                        self.groups[number] = worker, model
                    for one in batch:
                        self.to_run.remove(one)
                    break

    def joined(self, worker: int, model: int, request: int) -> bool:
        progress = self.engine.progress
        for group, place in list(self.groups.items()):
            assert progress is not None
            if group not in progress.groups:
                del self.groups[group]
            elif place == (worker, model) and progress.groups[group] < self.engine.times.sizes[
                    self.engine.workers.type[worker]][model][-1]:
                self.engine.join(group, [request])
                return True
        return False


def slower(worker: int, running: Any) -> list[float]:
    """Batches on one worker slow each other down."""
    return [1.0 / (1.0 + 0.3 * (len(running) - 1))] * len(running)


def check(seed: int) -> Run:
    """One random run; what must hold of it."""
    rng = np.random.default_rng(seed)
    made = random_scenario(rng)
    slowdown = slower if rng.random() < 0.4 else None
    run = Engine.of_scenario(made, seed, slowdown=slowdown).serve(Chance)
    found = measure(run)
    assert found.queries == (
        found.in_time + found.late + found.dropped + found.never_answered)
    ran = run.batch_of[run.batch_of >= 0]
    assert Counter(ran.tolist()) == Counter(dict(enumerate(run.size.tolist())))
    assert (run.start_ms[ran] >= run.arrival_ms[run.batch_of >= 0]).all()
    assert (run.finish_ms > run.start_ms).all()
    assert np.isfinite(run.finish_ms).all()
    assert set(np.flatnonzero(run.batch_of == DROPPED)) == set(run.drop_request.tolist())
    assert (run.response_ms > 0).all()
    bound = scenario_bound(made, draw_requests(made, seed))
    assert bound is None or found.in_time <= bound.in_time
    _check_loaded(run)
    _check_lanes(run, made)
    _check_cold(run)
    return run


def _check_loaded(run: Run) -> None:
    """Each batch runs, from start to end, within a stay of its model on its worker."""
    stays: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for worker, model, ready_ms in zip(run.load_worker.tolist(), run.load_model.tolist(),
                                       run.load_end_ms.tolist(), strict=True):
        gone = [at for w, m, at in zip(run.unload_worker, run.unload_model, run.unload_ms,
                                       strict=True)
                if (w, m) == (worker, model) and at >= ready_ms]
        gone += [at for w, up, at in zip(run.scaled_worker, run.scaled_up, run.scaled_ms,
                                         strict=True) if w == worker and not up and at >= ready_ms]
        stays.setdefault((worker, model), []).append((ready_ms, min(gone, default=np.inf)))
    for worker, model, start_ms, finish_ms in zip(
            run.worker.tolist(), run.model.tolist(), run.start_ms.tolist(),
            run.finish_ms.tolist(), strict=True):
        assert any(ready <= start_ms and finish_ms <= gone + 1e-9
                   for ready, gone in stays[worker, model])


def _check_cold(run: Run) -> None:
    """A cold start, request by request: the last load before the batch ended after the arrival."""
    for request in range(run.requests):
        batch = run.batch_of[request]
        ends = [] if batch < 0 else run.load_end_ms[
            (run.load_worker == run.worker[batch]) & (run.load_model == run.model[batch])
            & (run.load_end_ms <= run.start_ms[batch] + 1e-9)]
        assert run.cold[request] == (len(ends) > 0 and max(ends) > run.arrival_ms[request])


def _check_lanes(run: Run, made: Scenario) -> None:
    """No more static batches at a time than a worker has lanes."""
    arrays, types = made.arrays, made.worker_types
    continuous = [one.inference.batching == "continuous" for one in made.models]
    for worker, kind in enumerate(arrays.worker_type.tolist()):
        mine = [i for i in np.flatnonzero(run.worker == worker)
                if not continuous[arrays.kind[run.model[i]]]]
        changes = sorted([(run.start_ms[i], 1) for i in mine]
                         + [(run.finish_ms[i], -1) for i in mine])
        level = 0
        for _, change in changes:
            level += change
            assert level <= types[kind].lanes


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    answered = sum(int(check(seed).answered.sum()) for seed in range(count))
    print(f"{count} random scenarios hold; {answered} requests were answered")
