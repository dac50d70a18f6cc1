"""What a way of making policies consists of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from ramsis.arrays import FloatArray
from ramsis.policy import Expectations, Policy
from ramsis.profiles import ProfileSet
from ramsis.synthesis.settings import SynthesisSettings

Problem = TypeVar("Problem")


class Analysis(Protocol):
    """The stationary behaviour of a policy."""

    def distributions(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Values and probabilities of the batch size, queue length and slack."""

    def expectations(
        self, *, capacity_qps: float | None = None, upper_bound: float | None = None
    ) -> Expectations:
        """The record that a policy file carries."""


class Recipe(ABC, Generic[Problem]):
    """The way from a profile to a policy and back, for a dispatch rule."""

    @abstractmethod
    def problem(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings
    ) -> Problem:
        """The decision problem that the policy for a load solves.

        Raises
        ------
        InvalidValueError
            A number out of range.
        InfeasibleError
            An SLO below every latency.
        """

    @abstractmethod
    def policy(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings, problem: Problem
    ) -> Policy:
        """The best policy of a problem, with its promise and certificate.

        Raises
        ------
        NotConvergedError
            The solver stopped before its rule was met.
        """

    def modelled(
        self, profile: ProfileSet, load_qps: float, settings: SynthesisSettings, problem: Problem
    ) -> Policy:
        """As :meth:`policy`, with rates that are the model's where those promised are measured."""
        return self.policy(profile, load_qps, settings, problem)

    @abstractmethod
    def problem_of(
        self, policy: Policy, where: str = "policy", *, own_arrivals: str | None = None
    ) -> Problem:
        """Return the problem that a policy file describes.

        Parameters
        ----------
        where : str
            Names the file in messages.
        own_arrivals : str, optional
            ``package.module:name`` of an arrival process of one's own. A module that only the file
            names is not imported.

        Raises
        ------
        InputFileError
            Its parts do not make a problem.
        """

    @abstractmethod
    def analysis(self, policy: Policy, *, own_arrivals: str | None = None) -> Analysis:
        """The stationary behaviour of a policy file's table, distributions included.

        Raises
        ------
        InputFileError
            As :meth:`problem_of`.
        """
