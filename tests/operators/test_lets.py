"""Named expressions of a plan: they mean what their text would mean in their place, and are worked out once."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from operators.errors import PlanError
from operators.plan.reading import Plan, ResolvedPlan, parse_plan
from tests.operators.sample import FACTS, OPERATOR, header

DIMS = {"rows": 6, "cols": 100, "longest": 9}
PLAN = """\
requires = "wide"
[tune]
BLOCK = [256, 128]
[let]
tiles = "ceil_div(total, tile)"      # uses one that comes later
tile = "BLOCK * vector"
vector = "16 // sizeof_T"
wide = "cols >= vector"
[[buffer]]
name = "partial"
dtype = "ACC"
shape = ["tiles"]
[[tensor_map]]
name = "x_map"
tensor = "x"
shape = ["cols", "rows"]
box = ["vector", 1]
[[launch]]
kernel = "f<BLOCK>"
when = "tiles > 1 and i < tile"
group = "pass"
grid = ["min(tiles, sm_count * blocks_per_sm)"]
block = ["tile // vector"]
shared = "tile * sizeof_T"
args = ["x", "x_map", "partial", "tiles", "tile - i"]
[group.pass]
repeat = "vector"
"""


def plan_of(body: str, target: str = "cuda") -> Plan:
    return parse_plan(header(body), OPERATOR, target, name="k.cu")


def resolve(plan: Plan, dtype: str = "fp32", **dims: int) -> ResolvedPlan:
    return plan.resolve(OPERATOR, dtype=dtype, dims=DIMS | dims, values={}, facts=FACTS, occupancy={"f<BLOCK>": 2})


def inlined(body: str, texts: dict[str, str]) -> str:
    """The plan without names: each stands where it is used, in brackets."""
    begin, end = body.index("[let]"), body.index("[[", body.index("[let]"))
    body = body[:begin] + body[end:]
    for _ in texts:
        for name, text in texts.items():
            body = body.replace(name, f"({text})")
    return body


def test_names_stand_wherever_formulas_do() -> None:
    plan = plan_of(PLAN)
    resolved = resolve(plan, rows=60)
    assert [buffer.shape for buffer in resolved.buffers] == [(6,)] and resolved.tensor_maps[0].box == (4, 1)
    assert [step.grid[0] for step in resolved.steps] == [6] * 4 and resolved.steps[0].block == (256, 1, 1)
    assert [step.args[-1].value for step in resolved.steps] == [1024, 1023, 1022, 1021]
    assert resolved.steps[0].shared_bytes == 4096
    assert len(resolve(plan, "bf16", rows=60, cols=104).steps) == 8 and resolve(plan).steps == ()
    assert plan.supports(OPERATOR, DIMS, {}, FACTS, "fp32") and not plan.supports(
        OPERATOR, DIMS | {"cols": 3}, {}, FACTS, "fp32"
    )
    texts = {
        "tiles": "ceil_div(total, tile)", "tile": "BLOCK * vector", "vector": "16 // sizeof_T",
        "wide": "cols >= vector",
    }  # fmt: skip
    without = inlined(PLAN, texts)
    assert "[let]" not in without and resolve(plan_of(without), rows=60).canonical() == resolved.canonical()


def launches(*grids: str) -> str:
    return "".join(
        f'[[launch]]\nkernel = "f{n}"\nwhen = "{when}"\ngrid = [1]\nblock = [1]\nargs = ["{grid}"]\n'
        for n, (when, grid) in enumerate(zip(grids[::2], grids[1::2], strict=True))
    )


def test_a_name_without_a_value_matters_only_where_it_is_used() -> None:
    plan = plan_of('[let]\nshare = "total // (cols - 100)"\ntwice = "2 * share"\n' + launches("cols > 100", "twice"))
    assert resolve(plan).steps == ()
    assert resolve(plan, cols=102).steps[0].args[0].value == 2 * (612 // 2)
    always = plan_of('[let]\nshare = "total // (cols - 100)"\ntwice = "2 * share"\n' + launches("1", "twice"))
    with pytest.raises(PlanError) as error:
        resolve(always)
    assert str(error.value) == (
        "k.cu:line 5: launch 1 `f0`: args[0]: [let] `share`: `total // (cols - 100)` divides by zero with cols = 100, "
        "total = 600"
    )


def test_every_name_is_worked_out_once() -> None:
    chain = "".join(f'd{n} = "{" + ".join([f"d{n - 1}"] * 3)}"\n' for n in range(1, 31))  # 3**30 sums if it were not
    plan = plan_of('[let]\nd0 = "rows"\n' + chain + launches("1", "d30"))
    assert resolve(plan, rows=1).steps[0].args[0].value == 3**30


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('a = "b + 1"\nb = "c"\nc = "a"', "line 3: [let]: `a` rests on itself: `a` uses `b` uses `c` uses `a`;"),
        ('a = "rows"\nb = "b"', "line 4: [let]: `b` rests on itself: `b` uses `b`; write one of them"),
        ('a = "row"', "line 3: [let]: `a`: `row`: unknown name `row`; did you mean `rows`?"),
        ('a = "x"', "line 3: [let]: `a`: `x`: `x` is a tensor, not a number"),
        ('a = "blocks_per_sm"', "`blocks_per_sm` may stand in a launch's grid only"),
        ('a = "i"', "`i` counts the repeats of a group; it may stand only in launches that have a group"),
        ('rows = "1"', "line 3: [let]: `rows` is already a dim; choose another name"),
        ('sm_count = "1"', "line 3: [let]: `sm_count` is reserved; choose another name"),
        ("a = [1]", "line 3: [let]: `a` [1] is not an expression"),
        ("\n".join(f"a{n} = 1" for n in range(33)), "line 2: [let] names 33 expressions; at most 32 are allowed"),
        ('tile = 4\n[tune]\nBLOCK = [1]\n[[launch]]\nkernel = "f<tile>"\ngrid = [1]\nblock = [1]',
         "`tile` is a named expression, known at run time only; template arguments are tunables"),
        ('b = 4\n[[buffer]]\nname = "b"\ndtype = "T"\nshape = [1]', "`b` is already a named expression"),
    ],
)  # fmt: skip
def test_mistakes_in_named_expressions(body: str, message: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of("[let]\n" + body + ("" if "[[" in body else "\n" + launches("1", "1")))
    assert message in str(error.value) and "\n" not in str(error.value) and error.value.line is not None


ATOMS = st.sampled_from(["rows", "cols", "total", "sm_count", "sizeof_T", "0", "1", "3", "100"])


@st.composite
def named(draw: st.DrawFn) -> dict[str, str]:
    """Names with expressions over dims, facts and the names before them."""
    texts: dict[str, str] = {}
    for n in range(draw(st.integers(1, 4))):
        atoms = st.one_of(ATOMS, st.sampled_from([*texts] or ["1"]))
        a, b, c = (draw(atoms) for _ in range(3))
        forms = [f"{a} + {b}", f"{a} - {b} * {c}", f"{a} // {b}", f"{a} if {b} > {c} else {b}", f"max({a}, {b} % {c})",
                 f"{a} < {b} and {c} // {a} > 1"]  # fmt: skip
        texts[f"let{'abcd'[n]}"] = draw(st.sampled_from(forms))
    return texts


def outcome(body: str) -> str | None:
    """The result of the plan; None where an expression has no value."""
    plan = plan_of(body)
    try:
        return resolve(plan).canonical()
    except PlanError:
        return None


@given(texts=named(), data=st.data())
def test_a_name_means_what_its_text_would_mean(texts: dict[str, str], data: st.DataObject) -> None:
    names = st.sampled_from([*texts])
    plain = launches(*(data.draw(names) for _ in range(4)))
    order = data.draw(st.permutations([*texts]))
    body = "[let]\n" + "".join(f'{name} = "{texts[name]}"\n' for name in order) + plain
    without = inlined(body, texts)
    assume(max(map(len, without.splitlines())) < 400)  # expressions have limits, which names do not use up
    assert outcome(body) == outcome(without)
