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


def problem_of(policy: Policy, where: str = "policy") -> Any:
    """Return the decision problem that a policy file, which ``where`` names, describes.

    Raises
    ------
    InputFileError
        Its parts do not make a problem, or its arrival process cannot be made from its name.
    """
    return RECIPES[policy.dispatch].problem_of(policy, where)


def analyse_policy(policy: Policy) -> Analysis:
    """Analyse the stationary behaviour of a policy's table, distributions included.

    Raises
    ------
    InputFileError
        As :func:`problem_of`; or, with a central queue, the table differs from that of
        the repeated solution of the file's decision problem.
    """
    return RECIPES[policy.dispatch].analysis(policy)
