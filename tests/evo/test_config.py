"""Configurations: what is read, and the one line that bad ones get."""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import pytest

from evo.config import RunConfig, read_config
from operators.catalog import folders
from operators.champions import offered
from operators.errors import UserError


def read(tmp_path: Path, text: str, **changes: object) -> RunConfig:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    return read_config(path, changes, [])


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    made = read(tmp_path, 'operators = ["softmax"]\nseed = 3', seed=4).resolved()
    assert made.seed == 4
    assert made.workload_set == "cpu"
    assert RunConfig.from_json(made.to_json()) == made


def test_settings_reach_the_strategy() -> None:
    made = read_config(None, {"operators": ["softmax"]}, ["islands=4", "explore=0.5", "seed=9"]).resolved()
    assert made.settings == {"islands": 4, "explore": 0.5}
    assert made.seed == 9


def test_a_search_starts_from_all_kernel_files_of_the_folder_or_from_the_naive_one(tmp_path: Path) -> None:
    folder = tmp_path / "axpb"
    copytree(Path("tests/data/axpb"), folder)
    (folder / "wide.cpp").write_text((folder / "naive.cpp").read_text(encoding="utf-8"), encoding="utf-8")
    for ancestors, expected in ((None, ("naive", "wide")), ("naive", ("naive",))):
        made = read_config(None, {"operators": [str(folder)], "ancestors": ancestors}, []).resolved()
        ((operator, task),) = made.tasks()
        assert made.make_strategy(operator, task)._ancestors.names == expected


def test_language_models_come_from_the_command_line_and_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('operators = ["softmax"]\n[llm]\nmodels = ["openai/a"]\nmax_tokens = 500', encoding="utf-8")
    settings = ["llm.api_base=http://127.0.0.1:1/v1", 'llm.prices={"openai/b": {"input": 1, "output": 2}}']
    made = read_config(path, {"models": ["openai/b", "openai/c"]}, settings).resolved()
    assert made.llm
    assert made.llm.models == ("openai/b", "openai/c")
    assert (made.llm.max_tokens, made.llm.api_base) == (500, "http://127.0.0.1:1/v1")
    assert made.llm.prices["openai/b"].output == 2
    assert RunConfig.from_json(made.to_json()) == made


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('operators = ["softmax"', "not valid TOML"),
        ('operators = ["sofmax"]', "unknown operator `sofmax`; did you mean `softmax`?"),
        ("operators = []", "`operators`"),
        ('operator = ["softmax"]', "`operator` is not a key that exists here"),
        ('operators = ["softmax"]\nnum_island = 7', "`num_island` is not a key that exists here"),
        ('operators = ["softmax"]\nsettings = {num_island = 7}', "`num_island` is not a key that exists here"),
        ('operators = ["softmax"]\nsettings = {islands = 0}', "settings of strategy islands: `islands`"),
        ('operators = ["softmax"]\ntarget = "cpuu"', "unknown target `cpuu`; did you mean `cpu`?"),
        ('operators = ["softmax"]\nstrategy = "island"', "unknown strategy `island`; did you mean `islands`?"),
        ('operators = ["softmax"]\ndtypes = ["bf16"]', "operator softmax has no bf16 on cpu; it has fp32"),
        ('operators = ["softmax"]\nworkload_set = "huge"', "no workload set `huge`; there are"),
        ('operators = ["softmax", "softmax"]', "named twice"),
        ('operators = ["softmax"]\nllm = {api_base = "http://localhost:1/v1"}', "name it, such as --llm openai/gpt-5"),
        ('operators = ["softmax"]\nllm = {models = ["a/b"], api_base = "localhost"}', "llm.api_base"),
        ('operators = ["softmax"]\nllm = {models = ["a/b"], tokens = 7}', "llm.tokens"),
        ('operators = ["softmax"]\nllm = "a/b"', "`llm`"),
        ('operators = ["softmax"]\nseed = -1', "`seed`"),
        ('operators = ["softmax"]\nancestors = "tunable"', "`ancestors`: input should be 'naive' or 'all'"),
        ('operators = ["softmax"]\nworkers = "two"', "`workers`"),
        ('operators = ["./nowhere"]', "operator.toml: no such file"),
    ],
)
def test_a_bad_configuration_gets_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError) as caught:
        read(tmp_path, text).resolved()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UserError, match=r"nowhere\.toml: cannot be read: No such file"):
        read_config(Path("nowhere.toml"), {}, [])


def test_a_setting_without_a_value_is_refused() -> None:
    with pytest.raises(UserError, match="write key=value"):
        read_config(None, {"operators": ["softmax"]}, ["islands"])


CAMPAIGN = Path(__file__).parents[2] / "runs" / "configs" / "campaign"


def test_the_campaign_has_every_operator_once_and_starts_from_its_champions() -> None:
    named: list[str] = []
    for path in sorted(CAMPAIGN.glob("*.toml")):
        config = read_config(path, {}, [])
        named += config.operators
        tasks = config.tasks()
        assert {task.dtype for _, task in tasks} == {"fp32", "bf16"}
        for operator, task in tasks:
            assert operator.workload_set(config.workload_set)
            config.make_strategy(operator, task)
            best = [name for name in config.ancestor_names(operator, task) if name.startswith("champions/")]
            assert best == list(offered(operator, task.target, task.dtype)), task
    assert sorted(named) == sorted(folders())


def test_a_kernel_cannot_run_on_more_cores_than_there_are() -> None:
    with pytest.raises(UserError, match="threads = 4096: this process may use"):
        RunConfig(operators=["softmax"], target="cpu", threads=4096).resolved()
