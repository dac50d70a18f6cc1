"""Recipes by dispatch rule: make policies, and derive the problem that a policy solves."""

from collections.abc import Mapping
from typing import Any

from ramsis.policy import Policy
from ramsis.synthesis.recipes.central import Central
from ramsis.synthesis.recipes.per_worker import RoundRobinRecipe, ShortestQueueRecipe
from ramsis.synthesis.recipes.recipe import Analysis, Recipe

__all__ = ["RECIPES", "Analysis", "Recipe", "analyse_policy", "problem_of"]

RECIPES: Mapping[str, Recipe[Any]] = {
    "round-robin": RoundRobinRecipe(),
    "shortest-queue": ShortestQueueRecipe(),
    "central-queue": Central(),
}


def problem_of(
    policy: Policy, where: str = "policy", *, own_arrivals: str | None = None
) -> Any:
    """Return the decision problem that a policy file describes.

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
        Its parts do not make a problem, or its arrival process cannot be made from its name.
    """
    return RECIPES[policy.dispatch].problem_of(policy, where, own_arrivals=own_arrivals)


def analyse_policy(policy: Policy, *, own_arrivals: str | None = None) -> Analysis:
    """Analyse the stationary behaviour of a policy's table, distributions included.

    Parameters
    ----------
    own_arrivals : str, optional
        As in :func:`problem_of`.

    Raises
    ------
    InputFileError
        As :func:`problem_of`; or, with a central queue, the table differs from that of
        the repeated solution of the file's decision problem.
    """
    return RECIPES[policy.dispatch].analysis(policy, own_arrivals=own_arrivals)
