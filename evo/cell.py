"""What holds a run equal to others: the settings of a cell of a comparison."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

MOST_TRIALS = 10_000


class CellSettings(BaseModel):
    """What a run is told as a cell of a comparison (`evo compare`)."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    comparison: str = Field(min_length=1)
    """Its name."""
    arm: str = Field(min_length=1)
    """The name of the strategy with all that is set for it."""
    under_way: int = Field(1, ge=1, le=64)
    """Requests under way at most, profiles included, whatever the pool and whoever else uses it. With 1, each is asked
    for with the knowledge of all that came before it, in every arm alike."""
    trials: int = Field(0, ge=0, le=MOST_TRIALS)
    """Settings of tunables that are asked for, at most."""
    tune: bool = False
    """Whether they are those of the best kernel, after all that the strategy asks for by itself."""
