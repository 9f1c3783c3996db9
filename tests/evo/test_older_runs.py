"""Runs that older versions made: they open, resume and replay, every request under the digest that it was stored with.

`tests/data/runs` holds what version c84dd60 left of two searches with a scripted model that were interrupted, made by
`tests.evo.model_runs`: strategy islands, and best_of_n with repairs. A mutator or a prompt that changes breaks these
replays, as it breaks those of users' runs: where that is meant, the rules get a new version (`mutators.base.PROTOCOL`).
"""

from __future__ import annotations

import asyncio
import lzma
from pathlib import Path

import pytest

from evo.config import RunConfig
from evo.replay import replay
from evo.report.summary import summary
from evo.store import query
from tests.evo import model_runs
from tests.mutators.llm_server import LlmServer

RUNS = Path(__file__).parent.parent / "data" / "runs"


def opened(name: str, folder: Path) -> Path:
    folder.mkdir()
    packed = (RUNS / f"protocol-1-{name}.duckdb.xz").read_bytes()
    (folder / "evo.duckdb").write_bytes(lzma.decompress(packed))
    return folder


def told(folder: Path) -> int:
    return int(query(folder, "select count(*) as n from tells").column(0)[0].as_py())


@pytest.mark.parametrize(("name", "individuals"), [("islands", 153), ("best_of_n", 152)])
def test_a_run_of_an_older_version_opens_replays_and_goes_on(name: str, individuals: int, tmp_path: Path) -> None:
    folder = opened(name, tmp_path / "run")
    assert told(folder) == individuals
    assert summary(folder)
    done = replay(folder)
    assert done.equal, done.difference
    assert done.individuals == individuals

    stored = RunConfig.from_json(query(folder, "select config_json from runs").column(0)[0].as_py())
    assert stored.protocol == 1 and stored.llm

    async def resumed() -> str:
        async with LlmServer(model_runs.script) as server:
            llm = stored.llm.model_copy(update={"api_base": server.url}) if stored.llm else None
            more = stored.model_copy(update={"budget": {"evaluations": 126}, "llm": llm})
            return await model_runs.session(folder, more)

    asyncio.run(resumed())
    assert told(folder) > individuals
    done = replay(folder)
    assert done.equal, done.difference
