from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutators.base import Parent, Proposal, Request
from mutators.registry import MUTATORS, mutator
from mutators.transforms import TRANSFORMS
from mutators.transforms.mutator import Transform
from operators.catalog import load
from operators.definition.spec import Task
from operators.errors import UserError
from operators.kernel import Kernel
from operators.plan.reading import parse_plan
from tests.choosing import examples, size, some_slow
from tests.mutators.running import Built, CompileError, build_all

OPERATORS = ("softmax", "matrix_mul", "spmv_csr")


def naive(operator: str, target: str = "cpu") -> Kernel:
    return Kernel(operator, target, load(operator).ancestor("naive", target).read_text())


def propose(kernel: Kernel, seed: int = 0, **params: object) -> Proposal:
    request = Request(Task(kernel.operator, "fp32", kernel.target), 7, "transform", (kernel.id,), seed, params)
    return Transform().propose(request, (Parent(kernel),), load(kernel.operator))


@pytest.mark.parametrize("target", some_slow(["cpu", "cuda"], 1))
@pytest.mark.parametrize("operator", some_slow(OPERATORS, 1))
def test_the_same_request_makes_the_same_child(operator: str, target: str) -> None:
    children = [[propose(naive(operator, target), seed, count=3) for seed in range(8)] for _ in range(2)]
    assert [p.kernel for p in children[0]] == [p.kernel for p in children[1]]
    assert [p.description for p in children[0]] == [p.description for p in children[1]]
    assert len({p.kernel for p in children[0]}) >= 6


@pytest.mark.parametrize("target", ["cpu", "cuda"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_children_differ_from_their_parent_and_have_a_plan(operator: str, target: str) -> None:
    parent = naive(operator, target)
    for seed in range(10):
        proposal = propose(parent, seed)
        assert proposal.kernel and proposal.kernel.source != parent.source
        assert proposal.description.split(":")[0] in TRANSFORMS
        parse_plan(proposal.kernel.source, load(operator), target)


def test_a_named_transform_is_used_and_described() -> None:
    proposal = propose(naive("softmax"), rewrite="tile")
    assert proposal.kernel
    assert proposal.description.startswith("tile: tile loop `")
    assert "of softmax" in proposal.description and "by TILE_" in proposal.description


def test_values_of_the_parent_stay_and_new_tunables_have_fresh_names() -> None:
    first = propose(naive("matrix_mul"), rewrite="accumulator_tile").kernel
    assert first
    parent = first.with_values({"TILE_J": 16})
    child = propose(parent, rewrite="tile", count=2).kernel
    assert child and dict(child.values) == {"TILE_J": 16}
    tune = parse_plan(child.source, load("matrix_mul"), "cpu").tune
    assert len(tune) == 3 and "TILE_J" in tune


@pytest.mark.parametrize(
    ("params", "phrase"),
    [
        ({"rewrite": "tiles"}, "unknown rewrite `tiles`; did you mean `tile`?"),
        ({"rewrite": 3}, "unknown rewrite `3`"),
        ({"count": 0}, "count must be an integer from 1 to 32, not 0"),
        ({"count": True}, "count must be an integer from 1 to 32, not True"),
        ({"count": "2"}, "count must be an integer from 1 to 32, not '2'"),
        ({"rewrite": "coarsen"}, "`coarsen` applies nowhere in this softmax kernel"),
        ({"rewrite": "prefetch"}, "`prefetch` applies nowhere in this softmax kernel"),
    ],
)
def test_impossible_wishes_fail_with_a_reason(params: dict[str, object], phrase: str) -> None:
    proposal = propose(naive("softmax"), **params)
    assert proposal.kernel is None
    assert proposal.failure.startswith(phrase)


@pytest.mark.parametrize(
    ("source", "phrase"),
    [
        ("", "the parent's plan cannot be used: line 1: there is no header"),
        ("/*! evo\nlaunch = 3\n*/", "the parent's plan cannot be used: "),
        ('/*! evo\n[[launch]]\nkernel = "f"\nargs = []\n*/\n', "no transform applies"),
        ('/*! evo\n[[launch]]\nkernel = "f"\nargs = []\n*/\n}}}} for (;;) ((((', "no transform applies"),
        ('/*! evo\n[[launch]]\nkernel = "f"\nargs = []\n*/\n\ud800', "the parent's plan cannot be used: "),
    ],
)
def test_bad_parents_fail_with_a_reason(source: str, phrase: str) -> None:
    proposal = propose(Kernel("softmax", "cpu", source))
    assert proposal.kernel is None
    assert proposal.failure.startswith(phrase)


def test_deep_nesting_is_no_crash() -> None:
    deep = naive("softmax").source.replace("load(in[0])", "(" * 20_000 + "load(in[0])" + ")" * 20_000)
    long = naive("softmax").source.replace("load(in[0])", "0" + " + load(in[0])" * 10_000)
    for source in (deep, long):
        proposal = propose(Kernel("softmax", "cpu", source))
        assert proposal.failure == "no transform applies in this softmax kernel"


def test_no_parents_is_a_failure() -> None:
    request = Request(Task("softmax", "fp32", "cpu"), 0, "transform", (), 0)
    assert Transform().propose(request, (), load("softmax")).failure == "transform needs a parent"


@examples(60)
@given(st.integers(0, 2**32), st.sampled_from(OPERATORS), st.sampled_from(["cpu", "cuda"]), st.integers(1, 6))
def test_mutilated_parents_never_raise(seed: int, operator: str, target: str, cuts: int) -> None:
    random, parent = Random(seed), naive(operator, target)
    text = parent.source
    for _ in range(cuts):
        at = random.randrange(len(text))
        text = (
            text[:at]
            + random.choice(["", "{", "}", "(", ")", ";", "for (", "é", "*", "@", "[", "\n#if 0\n"])
            + text[at + random.randrange(4) :]
        )
    proposal = propose(Kernel(operator, target, text), seed, count=3)
    assert (proposal.kernel is None) == bool(proposal.failure)


@pytest.mark.parametrize("operator", some_slow(OPERATORS, 1))
def test_chains_of_transforms_compile_and_are_right(operator: str, tmp_path: Path) -> None:
    chains = []
    for seed in range(10):
        proposal = propose(naive(operator), seed, count=1 + seed % 6)
        assert proposal.kernel
        tune = parse_plan(proposal.kernel.source, load(operator), "cpu").tune
        values = {name: Random(f"{seed}{name}").choice(listed) for name, listed in tune.items()}
        chains.append((proposal, values))
    built, problems = _built(chains, operator, tmp_path)
    for proposal, kernel in built:
        error = kernel.worst_error()
        if not error < 2e-5:
            problems.append(f"{proposal.description}: error {error}")
    assert len(problems) <= 0.1 * len(chains), "\n".join(problems)


def _built(
    chains: list[tuple[Proposal, dict[str, int]]], operator: str, folder: Path
) -> tuple[list[tuple[Proposal, Built]], list[str]]:
    """All that compile, and what is wrong with the others: together if they all do, else one by one."""
    sources = [(proposal.kernel.source if proposal.kernel else "", values) for proposal, values in chains]
    proposals = [proposal for proposal, _ in chains]
    try:
        return list(zip(proposals, build_all(sources, load(operator), folder), strict=True)), []
    except CompileError:
        pass
    built, problems = [], []
    for proposal, source in zip(proposals, sources, strict=True):
        try:
            built += [(proposal, kernel) for kernel in build_all([source], load(operator), folder)]
        except CompileError as error:
            problems.append(f"{proposal.description}: {error}")
    return built, problems


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_cuda_children_compile(dtype: str) -> None:
    from fitness.cuda.compile.build import CudaBuild, compile_cuda

    for operator in OPERATORS:
        parent = naive(operator, "cuda")
        for seed in range(4):
            request = Request(Task(operator, dtype, "cuda"), 0, "transform", (parent.id,), seed, {"count": 1 + seed})
            proposal = Transform().propose(request, (Parent(parent),), load(operator))
            assert proposal.kernel
            try:
                result = compile_cuda(proposal.kernel, load(operator), dtype)
            except UserError as missing:
                pytest.skip(str(missing))
            assert isinstance(result, CudaBuild), f"{proposal.description}: {result}"


def test_applies_to_kernels_of_known_targets() -> None:
    assert Transform().applies(naive("softmax"), load("softmax"))
    assert Transform().applies(naive("softmax", "cuda"), load("softmax"))
    assert not Transform().applies(naive("softmax"), load("matrix_mul"))


def test_catalog_resolves_every_name_and_hints_at_typos() -> None:
    assert {mutator(name).name for name in ("transform", "tune")} == {"transform", "tune"}
    assert mutator("tune") is mutator("tune")
    assert all(":" in where for where in MUTATORS.values())
    with pytest.raises(UserError, match="unknown mutator `transfrom`; did you mean `transform`"):
        mutator("transfrom")


@pytest.mark.parametrize("target", some_slow(["cpu", "cuda"], 1))
@pytest.mark.parametrize("operator", some_slow(OPERATORS, 1))
def test_random_values_are_declared_ones_that_fit(operator: str, target: str) -> None:
    spread = set()
    for seed in range(size(12, 6)):
        plain = propose(naive(operator, target), seed, count=4)
        proposal = propose(naive(operator, target), seed, count=4, random_values=True)
        assert proposal.kernel and plain.kernel
        assert proposal.kernel.source == plain.kernel.source
        plan = parse_plan(proposal.kernel.source, load(operator), target)
        plan.settings(proposal.kernel.values)
        spread.add(tuple(proposal.kernel.values.items()))
    assert len(spread) > 3


def test_random_values_keep_within_what_the_plan_allows() -> None:
    source = naive("softmax").source.replace(
        "/*! evo", '/*! evo\nrequires = "A * B == 12"\n[tune]\nA = [12, 3, 4]\nB = [1, 3, 4]'
    )
    found = set()
    for seed in range(20):
        proposal = propose(
            Kernel("softmax", "cpu", source), seed, random_values=True, workload_set="cpu", rewrite="tile"
        )
        assert proposal.kernel
        values = {"A": 12, "B": 1, **proposal.kernel.values}
        found.add((values["A"], values["B"]))
    assert found <= {(12, 1), (3, 4), (4, 3)}
    assert len(found) > 1


def test_random_values_of_an_unknown_workload_set_keep_the_defaults() -> None:
    proposal = propose(naive("softmax"), 1, count=3, random_values=True, workload_set="huge")
    assert proposal.kernel and not proposal.kernel.values
    assert "no workload set `huge`" in proposal.description


def test_random_values_refuse_bad_facts() -> None:
    proposal = propose(naive("softmax"), random_values=True, facts={"cpu_count": "two"})
    assert proposal.failure == "facts must be a table of integers"
