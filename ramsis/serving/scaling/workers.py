"""Autoscaling of a server: starts and stops its own workers, or reports the wanted number.

The scaling table is looked up once every interval, with the arrivals of the interval. A worker
counts as starting until it answers. A stopping worker gets no more queries; queries in its queue
are rerouted, and its process ends after the current batch.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from ramsis.runtime.scaling_table import ScalingControl, ScalingTable
from ramsis.serving.server import Server
from ramsis.serving.workers.pool import WorkerPool


class _Follower:
    """Base of autoscalers by a scaling table; ``wanted`` workers should be active or starting."""

    def __init__(self, server: Server, table: ScalingTable, wanted: int) -> None:
        self.server, self.table, self.wanted = server, table, wanted
        self._control = ScalingControl(table)
        server.about_workers = self.about
        for name, text, key in (
            ("ramsis_wanted_workers", "Workers that the scaling table wants", "wanted"),
            ("ramsis_workers_active", "Workers that serve, of all servers together", "active"),
            ("ramsis_workers_starting", "Workers that start", "starting"),
        ):
            server.metrics.watch(name, text, self._reader(key))

    def _reader(self, key: str) -> Callable[[], float]:
        return lambda: self.about()[key]

    @property
    def active(self) -> int:
        """Number of workers that are serving."""
        raise NotImplementedError

    @property
    def starting(self) -> int:
        """Number of workers that are starting."""
        raise NotImplementedError

    def about(self) -> Mapping[str, int]:
        """Return the numbers of workers for the readiness endpoint."""
        return {"active": self.active, "starting": self.starting, "wanted": self.wanted}

    async def follow(self) -> None:
        """Set the number of workers by the scaling policy once every interval, until cancelled."""
        await self._look()
        loop, interval_s = asyncio.get_running_loop(), self.table.interval_s
        before_s, before, next_s = loop.time(), self.server.arrived, loop.time() + interval_s
        while True:
            await asyncio.sleep(next_s - loop.time())
            now_s, arrived = loop.time(), self.server.arrived
            load_qps = (arrived - before) / (now_s - before_s)
            before_s, before, next_s = now_s, arrived, max(next_s + interval_s, now_s)
            await self._look()
            self._decide(load_qps)

    async def _look(self) -> None:
        """Update what the next decision reads; nothing by default, as properties read it live."""

    def _decide(self, load_qps: float) -> None:
        """Look up the table, and log a change of the wanted number."""
        known_qps = self.server.settings.dispatch.load_qps
        load_qps = load_qps if known_qps is None else known_qps
        active, starting = self.active, self.starting
        self.wanted = self._control.wanted(load_qps, active, starting)
        if self.wanted != active + starting:
            self.server.log("scaling", load_qps=round(load_qps, 3), active=active,
                            starting=starting, wanted=self.wanted)


class OwnWorkers(_Follower):
    """Autoscaler that starts and stops a server's worker processes.

    The server starts with the least number of workers, and can have the largest.
    """

    def __init__(self, server: Server, table: ScalingTable) -> None:
        self._kept = list(range(table.least))  # workers that are to run, the longest running first
        self._ending = set[int]()
        super().__init__(server, table, table.least)

    @property
    def active(self) -> int:
        """Number of workers that are serving."""
        return sum(map(self._pool.takes_batches, self._kept))

    @property
    def starting(self) -> int:
        """Number of workers that have not answered yet, including restarted ones."""
        return len(self._kept) - self.active

    @property
    def _pool(self) -> WorkerPool:
        assert isinstance(self.server.pool, WorkerPool)
        return self.server.pool

    def _decide(self, load_qps: float) -> None:
        super()._decide(load_qps)
        self._reach()

    def _reach(self) -> None:
        """Start and stop workers until the wanted number is kept."""
        if not self.server.ready:
            return  # it is stopping
        while len(self._kept) > self.wanted:
            starting = [kept for kept in self._kept if not self._pool.takes_batches(kept)]
            worker = (starting or self._kept)[-1]
            self._kept.remove(worker)
            if starting:
                self._pool.end(worker)
            else:
                self._ending.add(worker)
                self.server.retire(worker, self._ended)
        free = [worker for worker in range(self.table.most)
                if worker not in self._ending and worker not in self._kept]
        for worker in free[:max(self.wanted - len(self._kept), 0)]:
            self._kept.append(worker)
            self._pool.begin(worker)

    def _ended(self, worker: int) -> None:
        """End a stopping worker that runs no batch; another one may reuse its number."""
        self._ending.discard(worker)
        self.server.log("worker stopped", worker=worker, process=self._pool.process(worker))
        self._pool.end(worker)
        asyncio.get_running_loop().call_soon(self._reach)


class Advice(_Follower):
    """Autoscaler that only reports the wanted number of workers, for an external one.

    The server has a fixed number of workers. ``peers`` is a host name that resolves to all servers
    of the group, each with as many workers and an equal share of the queries; None for a single
    server.
    """

    def __init__(self, server: Server, table: ScalingTable, peers: str | None = None) -> None:
        self._peers, self._servers = peers, 1
        self._decided = False
        super().__init__(server, table, server.workers)

    @property
    def active(self) -> int:
        """Number of workers that serve, over all servers."""
        return self._servers * self.server.front.dispatcher.workers_up

    @property
    def starting(self) -> int:
        """Number of workers that are wanted and do not serve yet."""
        return max(self.wanted - self.active, 0)

    def _decide(self, load_qps: float) -> None:
        super()._decide(self._servers * load_qps)
        self._decided = True

    async def _look(self) -> None:
        """Count the servers; until the first decision, the wanted number is the current one."""
        if self._peers is not None:
            try:
                addresses = await asyncio.get_running_loop().getaddrinfo(
                    self._peers, None, type=socket.SOCK_STREAM)
            except OSError as error:  # none of them is ready, or there is no name server
                self.server.log("peers unknown", name=self._peers, reason=str(error))
            else:
                self._servers = len({address[0] for *_, address in addresses})
        if not self._decided:
            self.wanted = self.active
