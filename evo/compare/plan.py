"""What a comparison is before it begins: its cells, their budget, and what it may cost at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evo.compare.config import USED, Cell, Comparison
from evo.compare.running import cells_at_once
from mutators.llm.settings import LlmSettings, is_outside


@dataclass(frozen=True)
class Plan:
    """What would be begun."""

    name: str
    arms: list[dict[str, Any]]
    cells: int
    asking: int
    """Cells that ask language models."""
    tasks: int
    seeds: int
    kind: str
    per_cell: float
    trials: int
    """In all cells together, at most."""
    most_usd: float | None
    """What the answers may cost at most; None: no limit follows from this budget, or a price is not known."""
    at_once: str

    def lines(self) -> list[str]:
        """The plan in words."""
        unit = USED[self.kind]
        lines = [
            f"{self.cells} cells, each a run: {len(self.arms)} arms x {self.tasks} tasks x {self.seeds} seeds",
            f"budget: {_amount(self.per_cell)} {unit} a cell, {_amount(self.cells * self.per_cell)} in all at most; "
            f"{self.trials} trials of tunables besides, and a confirmation of every winner",
            f"cells under way at once: {self.at_once}",
        ]
        if not self.asking:
            return [*lines, "no language model is asked: it costs nothing but time"]
        if self.most_usd is not None:
            return [*lines, f"language models cost {self.most_usd:.2f} US dollars at most, lost answers besides"]
        why = (
            "no price is known for all models; set llm.prices"
            if self.kind == "tokens"
            else f"a budget in {unit} limits no tokens; one in tokens or cost_usd does"
        )
        return [*lines, f"what language models may cost is not limited: {why}"]

    def as_row(self) -> dict[str, Any]:
        """The same as plain values."""
        return dict(vars(self))


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"


def plan(made: Comparison, cells: Sequence[Cell]) -> Plan:
    """What would be begun with these cells of a comparison."""
    kind, amount = made.limit
    asking = [cell for cell in cells if cell.config.llm]
    tuned = sum(cell.config.cell.trials for cell in cells if cell.config.cell)
    return Plan(
        made.name, [_arm(made, name, cells) for name in made.arms], len(cells), len(asking),
        len({(cell.operator, cell.dtype, cell.target) for cell in cells}), len(made.seeds), kind, amount, tuned,
        _most_usd(kind, amount, asking),
        f"{made.at_once or f'twice the jobs of the pool (8 jobs: {cells_at_once(cells, 8)})'}",
    )  # fmt: skip


def _arm(made: Comparison, name: str, cells: Sequence[Cell]) -> dict[str, Any]:
    arm = made.arms[name]
    own = [cell for cell in cells if cell.arm == name]
    llm = own[0].config.llm
    return {
        "arm": name, "strategy": own[0].config.strategy, "models": ", ".join(llm.models) if llm else "none",
        "profile": arm.profile if llm else "", "tuning": arm.tuning, "cells": len(own),
    }  # fmt: skip


def _most_usd(kind: str, amount: float, asking: Sequence[Cell]) -> float | None:
    if kind == "cost_usd":
        return amount * len(asking)
    if kind != "tokens":
        return None
    prices = [_dearest(cell.config.llm) for cell in asking if cell.config.llm]
    return sum(price * amount for price in prices) if all(map(math.isfinite, prices)) else None


def _dearest(llm: LlmSettings) -> float:
    """Dollars of the dearest token; infinite where a price is not known."""
    return max(_price(model, llm) for model in llm.models)


def _price(model: str, llm: LlmSettings) -> float:
    if told := llm.prices.get(model):
        return max(told.input, told.output) / 1e6
    if is_outside(model):
        return 0.0
    from mutators.llm.client import listed_price
    from mutators.llm.library import litellm_module

    found = listed_price(litellm_module(), model)
    return max(found.input, found.output) / 1e6 if found else math.inf
