"""The ways of making policies, by dispatch rule."""

from collections.abc import Mapping
from typing import Any

from ramsis.synthesis.recipes.central import Central
from ramsis.synthesis.recipes.per_worker import RoundRobinRecipe, ShortestQueueRecipe
from ramsis.synthesis.recipes.recipe import Analysis, Recipe

__all__ = ["RECIPES", "Analysis", "Recipe"]

RECIPES: Mapping[str, Recipe[Any]] = {
    "round-robin": RoundRobinRecipe(),
    "shortest-queue": ShortestQueueRecipe(),
    "central-queue": Central(),
}
