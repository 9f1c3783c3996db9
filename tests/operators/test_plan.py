import json
import pickle
import re

import pytest

from operators.definition.spec import RESERVED
from operators.errors import PlanError
from operators.plan.header import MAX_HEADER_BYTES, MAX_SOURCE_BYTES
from operators.plan.reading import FACTS as FACT_NAMES
from operators.plan.reading import (
    MAX_BUFFERS,
    MAX_LAUNCHES,
    Argument,
    Plan,
    ResolvedLaunch,
    ResolvedPlan,
    parse_plan,
)
from tests.operators.sample import FACTS, OPERATOR, header

DIMS = {"rows": 6, "cols": 100, "longest": 9}

CUDA = """\
requires = "cols % 4 == 0"
deterministic = false
zero = ["y", "partial"]

[tune]
BLOCK = [256, 128, 512]
ROWS = [1, 2]

[[buffer]]
name = "partial"
dtype = "ACC"
shape = ["rows", "BLOCK // 32"]

[[buffer]]
name = "other"
dtype = "T"
shape = ["total"]

[[tensor_map]]
name = "x_map"
tensor = "x"
shape = ["cols", "rows"]
box = [32, "ROWS"]
swizzle = "128B"

[[launch]]
kernel = "first<BLOCK, T>"
grid = ["ceil_div(rows, ROWS)"]
block = ["BLOCK"]
cluster = [2]
shared = "4 * BLOCK"
args = ["x", "x_map", "partial", "alpha", "rows", "cols * sizeof_T"]
when = "rows > 0"

[[launch]]
kernel = "pass_over"
grid = ["min(blocks_per_sm * sm_count, rows)", 2]
block = ["32", "2", "2"]
args = ["other if i % 2 else y", "y if i % 2 else other", "i", "2 ** i"]
group = "pass"
cooperative = true

[group.pass]
repeat = "ceil_log2(cols)"
"""

CPU = """\
[tune]
TILE = [16, 64]

[[launch]]
kernel = "sample"
args = ["x", "y", "alpha", "rows", "TILE"]
"""


def plan_of(body: str, target: str = "cuda") -> Plan:
    return parse_plan(header(body), OPERATOR, target, name="k.cu")


def resolve(plan: Plan, **changes: object) -> ResolvedPlan:
    given = {"dtype": "fp32", "dims": DIMS, "values": {}, "facts": FACTS, "occupancy": {"pass_over": 3}}
    return plan.resolve(OPERATOR, **(given | changes))  # type: ignore[arg-type]


def launch(extra: str = "", *, kernel: str = "f", grid: str = "[1]", block: str = "[32]") -> str:
    return f'[[launch]]\nkernel = "{kernel}"\ngrid = {grid}\nblock = {block}\n{extra}'


def test_a_full_plan() -> None:
    plan = plan_of(CUDA)
    assert plan.requires.text == "cols % 4 == 0" and not plan.deterministic
    assert [zero.name for zero in plan.zero] == ["y", "partial"]
    assert dict(plan.tune) == {"BLOCK": (256, 128, 512), "ROWS": (1, 2)}
    assert [(b.name, b.dtype) for b in plan.buffers] == [("partial", "ACC"), ("other", "T")]
    assert [m.name for m in plan.tensor_maps] == ["x_map"] and list(plan.groups) == ["pass"]
    assert [(one.kernel, one.line) for one in plan.launches] == [("first<BLOCK, T>", 27), ("pass_over", 36)]
    assert plan.occupancy_kernels == {"pass_over"} and FACT_NAMES["cuda"] | FACT_NAMES["cpu"] <= RESERVED


def test_resolving_it() -> None:
    resolved = resolve(plan_of(CUDA), values={"ROWS": 2}, dims={**DIMS, "rows": 8})
    assert [(b.name, b.dtype, b.shape, b.bytes) for b in resolved.buffers] == [
        ("partial", "fp32", (8, 8), 256),
        ("other", "fp32", (800,), 3200),
    ]
    assert len(resolved.steps) == 1 + 7
    first = resolved.steps[0]
    assert (first.grid, first.block, first.cluster) == ((4, 1, 1), (256, 1, 1), (2, 1, 1))
    assert first.shared_bytes == 1024 and not first.cooperative
    assert first.args == (
        Argument("tensor", "x"),
        Argument("map", "x_map"),
        Argument("buffer", "partial"),
        Argument("scalar", "alpha"),
        Argument("integer", "rows", 8),
        Argument("integer", "cols * sizeof_T", 400),
    )
    passes = resolved.steps[1:]
    assert [[a.name for a in step.args[:2]] for step in passes[:3]] == [["y", "other"], ["other", "y"], ["y", "other"]]
    assert [[a.value for a in step.args[2:]] for step in passes] == [[i, 2**i] for i in range(7)]
    assert passes[0].grid == (8, 2, 1) and passes[0].block == (32, 2, 2) and passes[0].cooperative
    (mapped,) = resolved.tensor_maps
    assert (mapped.dtype, mapped.shape, mapped.strides_bytes) == ("fp32", (100, 8), (400,))
    assert (mapped.box, mapped.element_strides, mapped.swizzle) == ((32, 2), (1, 1), "128B")


def test_the_dtype_changes_types_and_sizes() -> None:
    resolved = resolve(plan_of(CUDA), dtype="bf16", dims={**DIMS, "cols": 104})
    assert [b.dtype for b in resolved.buffers] == ["fp32", "bf16"]
    assert resolved.steps[0].args[-1].value == 208 and resolved.tensor_maps[0].strides_bytes == (208,)


def test_cpu_plans_have_functions_and_arguments_only() -> None:
    plan = plan_of(CPU, "cpu")
    (step,) = resolve(plan, values={"TILE": 64}).steps
    assert step == ResolvedLaunch("sample", step.args)
    assert [a.kind for a in step.args] == ["tensor", "tensor", "scalar", "integer", "integer"]
    assert step.args[-1].value == 64 and step.grid == ()


def test_settings_fill_in_defaults_and_refuse_strangers() -> None:
    plan = plan_of(CUDA)
    assert plan.settings({}) == {"BLOCK": 256, "ROWS": 1}
    assert plan.settings({"ROWS": 2}) == {"BLOCK": 256, "ROWS": 2}
    with pytest.raises(PlanError, match=r"k\.cu: unknown tunable `BLOK`; did you mean `BLOCK`\?"):
        plan.settings({"BLOK": 1})
    with pytest.raises(PlanError, match=r"BLOCK = 300 is not a declared value; \[tune\] lists 256, 128, 512"):
        plan.settings({"BLOCK": 300})


def test_requires() -> None:
    plan = plan_of(CUDA)
    assert plan.supports(OPERATOR, DIMS, {}, FACTS, "fp32")
    assert not plan.supports(OPERATOR, {**DIMS, "cols": 6}, {}, FACTS, "fp32")
    assert plan_of(launch()).supports(OPERATOR, DIMS, {}, {}, "fp32")
    by_size = plan_of('requires = "cols * sizeof_T % 16 == 0"\n' + launch())
    assert by_size.supports(OPERATOR, {"rows": 1, "cols": 4}, {}, {}, "fp32")
    assert not by_size.supports(OPERATOR, {"rows": 1, "cols": 4}, {}, {}, "bf16")
    with pytest.raises(PlanError, match="`requires`: `8 % cols` divides by zero with cols = 0"):
        plan_of('requires = "8 % cols"\n' + launch()).supports(OPERATOR, {"rows": 1, "cols": 0}, {}, {}, "fp32")


def test_derived_dims_are_added_and_data_dims_are_the_callers() -> None:
    plan = plan_of(launch('args = ["total", "longest"]'))
    (step,) = resolve(plan, dims={"rows": 2, "cols": 3, "longest": 5}).steps
    assert [a.value for a in step.args] == [6, 5]
    with pytest.raises(PlanError, match="longest has no value here"):
        resolve(plan, dims={"rows": 2, "cols": 3})
    with pytest.raises(PlanError, match="cols has no value here"):
        resolve(plan, dims={"rows": 2})


def test_nothing_to_do_is_allowed_where_the_plan_says_so() -> None:
    body = launch(grid='["rows"]', extra='when = "rows > 0"')
    assert resolve(plan_of(body), dims={"rows": 0, "cols": 1}).steps == ()
    repeated = launch('group = "g"\n[group.g]\nrepeat = "ceil_log2(rows)"')
    assert resolve(plan_of(repeated), dims={"rows": 1, "cols": 1}).steps == ()


def test_launches_of_a_group_alternate() -> None:
    body = "\n".join(launch('group = "g"', kernel=name) for name in "ab") + "\n" + launch(kernel="c")
    resolved = resolve(plan_of(body + "\n[group.g]\nrepeat = 2"))
    assert "".join(step.kernel for step in resolved.steps) == "ababc"


def test_a_tensor_map_that_no_step_uses_is_not_made() -> None:
    body = CUDA.replace('when = "rows > 0"', 'when = "cols % 4 == 0"')
    assert resolve(plan_of(body), dims={**DIMS, "cols": 101}).tensor_maps == ()
    with pytest.raises(
        PlanError, match="tensor_map `x_map`: strides: 404 bytes; every stride must be a multiple of 16"
    ):
        resolve(plan_of(CUDA), dims={**DIMS, "cols": 101})


def test_canonical_text_is_what_matters_at_run_time() -> None:
    plan = plan_of(CUDA)
    resolved = resolve(plan)
    assert json.loads(resolved.canonical())["steps"][0]["args"][-2:] == [6, 400]
    assert (
        resolve(plan_of("# a comment\n" + CUDA.replace("4 * BLOCK", "BLOCK * 4"))).canonical() == resolved.canonical()
    )
    assert pickle.loads(pickle.dumps(resolved)).canonical() == resolved.canonical()
    others = [
        resolve(plan, dims={**DIMS, "rows": 8}),
        resolve(plan, values={"BLOCK": 128}),
        resolve(plan, occupancy={"pass_over": 1}, facts=FACTS | {"sm_count": 1}),
        resolve(plan_of(CUDA.replace("cooperative = true", ""))),
        resolve(plan_of(CUDA.replace('["y", "partial"]', '["partial"]'))),
        resolve(plan_of(CUDA.replace('swizzle = "128B"', ""))),
        resolve(plan_of(CUDA.replace('dtype = "ACC"', 'dtype = "int32"'))),
    ]
    assert len({resolved.canonical(), *(other.canonical() for other in others)}) == 8


def test_arguments_that_look_alike_differ() -> None:
    texts = ('"x"', '"y"', '"alpha"', '"rows"', "7", '"state"')
    canonical = {resolve(plan_of(launch(f"args = [{text}]"))).canonical() for text in texts}
    assert len(canonical) == len(texts)


def test_occupancy_is_asked_for_only_where_it_is_used() -> None:
    with pytest.raises(PlanError) as error:
        resolve(plan_of(CUDA), occupancy=None)
    assert "line 36: launch 2 `pass_over`: grid: blocks_per_sm is known once the kernel is compiled" in str(error.value)
    assert resolve(plan_of(launch()), occupancy=None).steps


def test_where_a_header_may_stand() -> None:
    body = launch()
    for before in ("", "\ufeff", "\n\n  ", "\r\n"):
        assert parse_plan(before + header(body), OPERATOR, "cuda").launches[0].line == 2 + before.count("\n")
    assert parse_plan(header(body).replace("\n", "\r\n"), OPERATOR, "cuda").launches[0].line == 2
    inline = '/*! evo launch = [{kernel = "sample", args = ["x"]}] */'
    assert parse_plan(inline, OPERATOR, "cpu").launches[0].line == 1


@pytest.mark.parametrize(
    ("source", "phrase"),
    [
        ("", "k.cu:line 1: there is no header; a kernel file starts with `/*! evo"),
        ("void f() {}", "line 1: there is no header"),
        ("\n/* evo\n*/", "line 2: the header must open with `/*! evo`, with an exclamation mark"),
        ("// text\n\n/*! evo\n*/", "line 3: the header `/*! evo ... */` must be the first thing in the file"),
        ("/*! evolution\n*/", "there is no header"),
        ("/*! evo\nzero = []\n", "line 1: the header `/*! evo` has no end; close it with `*/`"),
        ("/*! evo */", "line 1: there is no [[launch]]; a plan needs one"),
        ("\n/*! evo\n\n*/", "line 2: there is no [[launch]]"),
        ("/*! evo\n*/" + " " * MAX_SOURCE_BYTES, f"bytes; at most {MAX_SOURCE_BYTES} are allowed"),
        ("/*! evo\n#" + " " * MAX_HEADER_BYTES + "\n*/", f"the header is longer than {MAX_HEADER_BYTES} bytes"),
        ("/*! evo\n*/\n\n// \ud800", "line 4: half a surrogate pair; the file must be valid Unicode"),
        ("/*! evo\na = " + "[" * 500 + "\n*/", "line 2: more than 16 brackets are open"),
    ],
)
def test_files_without_a_usable_header(source: str, phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan(source, OPERATOR, "cuda", name="k.cu")
    assert phrase in str(error.value) and "\n" not in str(error.value)


CUDA_MISTAKES = [
    # TOML
    ("[[launch]]\nkernel = f", "line 3: not valid TOML: Invalid value in `kernel = f`; expressions and names stand in"),
    ('[[launch]]\nkernel = "f', "line 3: not valid TOML"),
    ("[[launch]]\nkernel", "line 3: not valid TOML"),
    ('args = ["x",\n\n', "line 5: not valid TOML: Invalid value; is a string or list not closed"),
    ("deterministic = True", "line 2: not valid TOML: Invalid value in `deterministic = True`"),
    ("[tune]\nA = [1]\nA = [2]", "line 4: not valid TOML: Cannot overwrite a value"),
    ("[tune]\nA = [" + "9" * 5000 + "]", "line 3: a line of 5006 characters; at most 4096"),
    # keys
    ("launches = []", "line 2: `launches` is not a key that exists here; did you mean `launch`?"),
    ('kernel = "f"', "line 2: `kernel` belongs into a [[launch]] table"),
    (launch('gird = ["1"]'), "line 6: launch 1 `f`: `gird` is not a key that exists here; did you mean `grid`?"),
    (launch("stream = 1"), "line 6: launch 1 `f`: `stream` is not a key that exists here; allowed are kernel, args"),
    ('[launch]\nkernel = "f"', "line 2: `launch` must be written [[launch]], in double brackets"),
    ("launch = [3]", "line 2: launch 1 must be a table, not 3"),
    ('[[buffer]]\nname = "b"\ntype = "T"', "line 4: buffer 1 `b`: `type` is not a key that exists here"),
    # top level
    ('requires = "cols %% 4"\n' + launch(), "line 2: `requires`: `cols %% 4`: invalid syntax"),
    ('requires = "y > 0"\n' + launch(), "line 2: `requires`: `y > 0`: `y` is a tensor, not a number"),
    ("requires = true\n" + launch(), "line 2: `requires` True is not an expression"),
    ('deterministic = "no"\n' + launch(), "line 2: `deterministic` must be true or false, not 'no'"),
    ('zero = "y"\n' + launch(), "line 2: `zero` must be a list such as [\"y\"], not 'y'"),
    ('zero = ["z"]\n' + launch(), "line 2: `zero` may name outputs and buffers: unknown name `z`; allowed are y"),
    ('zero = ["x"]\n' + launch(), "line 2: `zero` names `x`, which has the role in; its values would be lost"),
    ('zero = ["state"]\n' + launch(), "names `state`, which has the role inout"),
    ('zero = ["y", "y"]\n' + launch(), "line 2: `zero` names `y` more than once"),
    ("zero = [1]\n" + launch(), "line 2: `zero` may name outputs and buffers: holds 1"),
    # tunables
    ("tune = 3\n" + launch(), "line 2: [tune] must be a table, not 3"),
    ("[tune]\nBLOCK = 256", "line 3: [tune]: `BLOCK` must be a list such as [256, 128, 512], not 256"),
    ("[tune]\nBLOCK = []", "line 3: [tune]: `BLOCK` must have 1 to 64 elements, not 0"),
    ("[tune]\nBLOCK = [256, 256]", "line 3: [tune]: `BLOCK` lists 256 more than once"),
    ("[tune]\nBLOCK = [256.0]", "line 3: [tune]: `BLOCK` holds 256.0; tunables are integers"),
    ("[tune]\nBLOCK = [true]", "line 3: [tune]: `BLOCK` holds true; tunables are integers"),
    ('[tune]\nBLOCK = ["256"]', "line 3: [tune]: `BLOCK` holds '256'; tunables are integers"),
    (f"[tune]\nBLOCK = [{2**63}]", "tunables are integers below 2**63 in magnitude"),
    ("[tune]\nblock = [1]", "line 3: [tune]: `block` must be in capitals, such as BLOCK"),
    ("[tune]\nrows = [1]", "line 3: [tune]: `rows` is already a dim; choose another name"),
    ("[tune]\nalpha = [1]", "line 3: [tune]: `alpha` is already a scalar; choose another name"),
    ("[tune]\nT = [1]", "line 3: [tune]: `T` is reserved; choose another name"),
    ("[tune]\nNULL = [1]", "line 3: [tune]: `NULL` is reserved; choose another name"),
    ("[tune]\nfor = [1]", "line 3: [tune]: `for` is reserved; choose another name"),
    ('[tune]\n"A B" = [1]', "line 3: [tune]: `A B` is no proper name; use letters, digits"),
    ("[tune]\nA__B = [1]", "line 3: [tune]: `A__B` is no proper name; use letters, digits and single _"),
    ("[tune]\n" + "\n".join(f"A{n} = [1]" for n in range(33)), "[tune] has 33 tunables; at most 32 are allowed"),
    ("[tune]\nA = [" + ",".join(map(str, range(65))) + "]", "`A` must have 1 to 64 elements, not 65"),
    # buffers
    ('[[buffer]]\ndtype = "T"', "line 2: buffer 1: `name` is missing; write name = \"partial\""),
    ('[[buffer]]\nname = "b"\nshape = [1]', "line 2: buffer 1 `b`: `dtype` is missing; write dtype = \"ACC\""),
    ('[[buffer]]\nname = "b"\ndtype = "T"', "buffer 1 `b`: `shape` is missing; write shape = [\"rows\", \"256\"]"),
    ('[[buffer]]\nname = "b"\ndtype = "float"\nshape = [1]', "line 4: buffer 1 `b`: `dtype` 'float' does not exist"),
    ('[[buffer]]\nname = "y"\ndtype = "T"\nshape = [1]', "line 3: buffer 1 `y`: `name`: `y` is already a tensor"),
    ('[[buffer]]\nname = "i"\ndtype = "T"\nshape = [1]', "line 3: buffer 1 `i`: `name`: `i` is reserved"),
    ('[[buffer]]\nname = "b"\ndtype = "T"\nshape = ["row"]', "line 5: buffer 1 `b`: `shape`: `row`: unknown name"),
    ("[[buffer]]\n" * (MAX_BUFFERS + 1), f"[[buffer]] tables; at most {MAX_BUFFERS} are allowed"),
    # launches
    ("[[launch]]\ngrid = [1]", "line 2: launch 1: `kernel` is missing; write kernel = \"softmax_rows<BLOCK, T>\""),
    ('[[launch]]\nkernel = "f"\nblock = [1]', "line 2: launch 1 `f`: `grid` is missing; write grid = "),
    ('[[launch]]\nkernel = "f"\ngrid = [1]', "line 2: launch 1 `f`: `block` is missing; write block = [\"256\"]"),
    ("[[launch]]\nkernel = 3", "line 3: launch 1: `kernel` must be a string such as"),
    (launch(grid="3"), "line 4: launch 1 `f`: `grid` must be a list such as [\"ceil_div(n, 256)\"], not 3"),
    (launch(grid="[1, 1, 1, 1]"), "line 4: launch 1 `f`: `grid` must have 1 to 3 elements, not 4"),
    (launch(grid='["rows / 4"]'), "line 4: launch 1 `f`: `grid`: `rows / 4`: `/` would leave the integers"),
    (launch(grid='["col"]'), "line 4: launch 1 `f`: `grid`: `col`: unknown name `col`; did you mean `cols`?"),
    (launch(grid='["i"]'), "line 4: launch 1 `f`: `grid`: `i`: `i` counts the repeats of a group"),
    (launch(grid='["cpu_count"]'), "`cpu_count` is known on the cpu target only"),
    (launch(block='["blocks_per_sm"]'), "line 5: launch 1 `f`: `block`: `blocks_per_sm`: `blocks_per_sm` may stand in"),
    (launch(block='["alpha"]'), "line 5: launch 1 `f`: `block`: `alpha`: `alpha` is a scalar, not a number"),
    (launch("shared = 4.5"), "line 6: launch 1 `f`: `shared` 4.5 is not an expression"),
    (launch("cooperative = 1"), "line 6: launch 1 `f`: `cooperative` must be true or false, not 1"),
    (launch('args = ["x",\n  "rows",\n  "z"]'), "line 8: launch 1 `f`: `args`: `z`: unknown name `z`; allowed are"),
    (launch('args = ["x + 1"]'), "line 6: launch 1 `f`: `args`: `x + 1`: `x` has no numeric value"),
    (launch("args = [1e-5]"), "line 6: launch 1 `f`: `args` 1e-05 is not an expression"),
    (launch('args = ["x, y"]'), "line 6: launch 1 `f`: `args`: `x, y`: one expression is wanted, not several"),
    (launch() + "\n" + launch("when = 'x'", kernel="g"), "line 11: launch 2 `g`: `when`: `x`: `x` is a tensor"),
    (launch() * (MAX_LAUNCHES + 1), f"[[launch]] tables; at most {MAX_LAUNCHES} are allowed"),
    # groups
    (launch('group = "g"'), "line 6: launch 1 `f`: `group` 'g' is not declared; add [group.g] with repeat = \"...\""),
    (launch("group = 1"), "line 6: launch 1 `f`: `group` must be a string"),
    (launch("[group.g]\nrepeat = 2"), "line 6: group `g` is used by no launch"),
    (launch('group = "g"\n[group.g]'), "line 7: group `g`: `repeat` is missing; write repeat = \"ceil_log2(n)\""),
    (launch('group = "g"\n[group.g]\nrepeat = "i"'), "line 8: group `g`: `repeat`: `i`: `i` counts the repeats"),
    (launch('group = "g"\n[group.g]\ntimes = 2'), "line 8: group `g`: `times` is not a key that exists here"),
    ("group = 1\n" + launch(), "line 2: [group] must be a table, not 1"),
    (
        launch('group = "g"') + "\n" + launch() + "\n" + launch('group = "g"\n[group.g]\nrepeat = 2'),
        "line 17: group `g`: its launches must follow each other directly",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "phrase"), CUDA_MISTAKES)
def test_mistakes_in_cuda_plans(body: str, phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(body)
    message = str(error.value)
    assert phrase in message
    assert message.startswith("k.cu:line ") and message.isprintable() and len(message) < 600
    assert error.value.line is not None and error.value.source == "k.cu"


KERNEL_NAMES = [
    ("", "the name is incomplete"),
    ("f<", "`<` is not closed"),
    ("f>", "`>` has no opening bracket"),
    ("f<(1>)", "`>` has no opening bracket"),
    ("f()", "`(` cannot stand here; write name or name<BLOCK, T>, without arguments"),
    ("f g", "`g` cannot follow `f`"),
    ("f<1,>", "`,` is followed by `>`"),
    ("f<,1>", "`,` cannot stand here"),
    ("f, g", "`,` cannot stand here"),
    ("ns::", "the name is incomplete"),
    ("f; system(1)", "`;` cannot stand in a kernel's name"),
    ("f<BLOCK / 32>", "`/` cannot stand in a kernel's name"),
    ("&f", "`&` cannot stand in a kernel's name"),
    ("f\\n#include", "cannot stand in a kernel's name"),
    ("f<sizeof(T)>", "`sizeof` is a word of C++ that cannot stand"),
    ("float", "`float` is not a kernel's name"),
    ("256", "`256` is not a kernel's name"),
    ("f<cols>", "`cols` is a dim, known at run time only; template arguments are tunables, T, ACC and constants"),
    ("f<x>", "`x` is a tensor, known at run time only"),
    ("f<sm_count>", "`sm_count` is a fact, known at run time only"),
    ("f<i>", "`i` is a counter, known at run time only"),
    ("f<1.5>", "`.` cannot stand in a kernel's name"),
    ("f<12ab>", "`1` cannot stand in a kernel's name"),
    ("é", "cannot stand in a kernel's name"),
    ("f" * 201, "at most 200 characters"),
]


@pytest.mark.parametrize(("name", "phrase"), KERNEL_NAMES)
def test_kernel_names_that_are_refused(name: str, phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(launch(kernel=name))
    assert phrase in str(error.value) and "line 3: launch 1" in str(error.value)


@pytest.mark.parametrize(
    "name",
    ["f", "::f", "ns::f", "ns::f<256>", "f<BLOCK, T, ACC>", "f<float, true, 4u>", "f<ns::Tile<32, 8>>", "f<(BLOCK), 0>",
     "f< unsigned long long , 1LL >", "f<>", "ns::Kernel<T>::run<2>"],
)  # fmt: skip
def test_kernel_names_that_are_allowed(name: str) -> None:
    assert plan_of(f"[tune]\nBLOCK = [1]\n{launch(kernel=name)}").launches[0].kernel == name


@pytest.mark.parametrize(
    ("body", "phrase"),
    [
        ("grid = [1]", "line 4: launch 1 `f`: `grid` exists on the cuda target only; on cpu a launch has kernel, args"),
        ("block = [1]", "`block` exists on the cuda target only"),
        ("cluster = [1]", "`cluster` exists on the cuda target only"),
        ("shared = 1", "`shared` exists on the cuda target only"),
        ("cooperative = false", "`cooperative` exists on the cuda target only"),
        ("[[tensor_map]]", "line 4: `tensor_map` exists on the cuda target only"),
        ('when = "sm_count > 1"', "`sm_count` is known on the cuda target only"),
        ('args = ["blocks_per_sm"]', "`blocks_per_sm` is known on the cuda target only"),
        (
            '[[buffer]]\nname = "b"\ndtype = "bf16"\nshape = [1]',
            "`dtype` 'bf16' does not exist here; allowed are T, ACC",
        ),
    ],
)
def test_what_the_cpu_target_has_not(body: str, phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(f'[[launch]]\nkernel = "f"\n{body}', "cpu")
    assert phrase in str(error.value)


@pytest.mark.parametrize("name", ["f<T>", "ns::f", "", "for", "1f", "f()"])
def test_cpu_kernels_are_functions(name: str) -> None:
    with pytest.raises(PlanError, match='on cpu `kernel` is the plain name of an extern "C" function'):
        plan_of(f'[[launch]]\nkernel = "{name}"', "cpu")


def tensor_map(**changes: str) -> str:
    keys = {"name": '"m"', "tensor": '"x"', "shape": '["cols", "rows"]', "box": "[32, 2]"} | changes
    lines = "\n".join(f"{key} = {value}" for key, value in keys.items() if value)
    return f"[[tensor_map]]\n{lines}\n" + launch('args = ["m"]')


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"tensor": ""}, "tensor_map 1 `m`: `tensor` is missing"),
        ({"tensor": '"alpha"'}, "unknown tensor or buffer `alpha`; allowed are index, state, x, y"),
        ({"name": '"x"'}, "`name`: `x` is already a tensor"),
        ({"shape": ""}, "`shape` is missing"),
        ({"shape": "[1, 1, 1, 1, 1, 1]"}, "`shape` must have 1 to 5 elements, not 6"),
        ({"box": ""}, "`box` is missing; write box = [64, 64]"),
        ({"box": "[32]"}, "`box` must have 2 elements, not 1; for example [64, 64]"),
        ({"strides": "[400, 4]"}, "`strides` must have 1 element, not 2"),
        ({"element_strides": "[1]"}, "`element_strides` must have 2 elements, not 1"),
        ({"swizzle": '"256B"'}, "`swizzle` '256B' does not exist; allowed are NONE, 32B, 64B, 128B, 128B_ATOM_32B"),
        ({"l2_promotion": '"128B"'}, "`l2_promotion` '128B' does not exist; allowed are NONE, L2_64B, L2_128B"),
        ({"oob_fill": '"ZERO"'}, "`oob_fill` 'ZERO' does not exist; allowed are NONE, NAN_REQUEST_ZERO_FMA"),
        ({"interleave": '"16B"'}, "`interleave` is not a key that exists here"),
    ],
)  # fmt: skip
def test_mistakes_in_tensor_maps(changes: dict[str, str], phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        plan_of(tensor_map(**changes))
    assert phrase in str(error.value)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"shape": '["cols", "rows - 6"]'}, "shape: `rows - 6` is 0; allowed are 1 to 4294967296"),
        ({"box": "[257, 1]"}, "box: `257` is 257; allowed are 1 to 256"),
        ({"box": "[3, 1]"}, "box: the innermost dimension has 12 bytes; it must be a multiple of 16"),
        ({"swizzle": '"64B"'}, "box: the innermost dimension has 128 bytes; swizzle 64B allows at most 64"),
        ({"element_strides": "[1, 9]"}, "element_strides: `9` is 9; allowed are 1 to 8"),
        ({"strides": '["cols"]'}, "strides: 100 bytes; every stride must be a multiple of 16"),
        ({"strides": "[800]"}, "shape [100, 6] with strides [800] spans 4400 bytes, but `x` has 2400"),
        ({"shape": '["cols", "rows + 1"]'}, "spans 2800 bytes, but `x` has 2400"),
        ({"tensor": '"index"', "shape": "[2]", "box": "[4]", "oob_fill": '"NAN_REQUEST_ZERO_FMA"'}, "`index` is int32"),
        ({"shape": '["cols // 0", 1]'}, "shape: `cols // 0` divides by zero"),
    ],
)  # fmt: skip
def test_limits_of_tensor_maps(changes: dict[str, str], phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        resolve(plan_of(tensor_map(**changes)))
    assert phrase in str(error.value) and "k.cu:line 2: tensor_map `m`" in str(error.value)


def test_tensor_maps_take_the_drivers_own_names() -> None:
    (mapped,) = resolve(plan_of(tensor_map(
        swizzle='"CU_TENSOR_MAP_SWIZZLE_128B"', l2_promotion='"CU_TENSOR_MAP_L2_PROMOTION_L2_256B"',
        oob_fill='"CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA"',
        element_strides="[1, 2]", strides='["4 * cols"]',
    ))).tensor_maps  # fmt: skip
    assert (mapped.swizzle, mapped.l2_promotion, mapped.oob_fill) == ("128B", "L2_256B", "NAN_REQUEST_ZERO_FMA")
    assert mapped.element_strides == (1, 2) and mapped.strides_bytes == (400,)


def buffer(*axes: str) -> str:
    return f'[[buffer]]\nname = "b"\ndtype = "T"\nshape = {json.dumps(axes)}\n' + launch()


@pytest.mark.parametrize(
    ("body", "phrase"),
    [
        (launch(grid='["rows // 8"]'), "line 2: launch 1 `f`: grid[0]: `rows // 8` is 0 with rows = 6; allowed"),
        (launch(grid='[1, "cols * 1000"]'), "grid[1]: `cols * 1000` is 100000 with cols = 100; allowed are 1 to 65535"),
        (launch(grid='["2 ** 31"]'), "grid[0]: `2 ** 31` is 2147483648; allowed are 1 to 2147483647"),
        (launch(grid='["cols // (rows - 6)"]'), "`cols // (rows - 6)` divides by zero with cols = 100, rows = 6"),
        (launch(block='["rows * 200"]'), "block[0]: `rows * 200` is 1200 with rows = 6; allowed are 1 to 1024"),
        (launch(block="[64, 32]"), "block: 64 x 32 x 1 = 2048 threads; a block has at most 1024"),
        (launch(block="[1, 1, 65]"), "block[2]: `65` is 65; allowed are 1 to 64"),
        (launch("cluster = [3]"), "cluster: the grid's x = 1 is not a multiple of the cluster's 3"),
        (launch("cluster = [4, 4]", grid="[4, 4]"), "cluster: 4 x 4 x 1 = 16 blocks; a cluster has at most 8"),
        (launch('shared = "cols * 3000"'), "shared: `cols * 3000` is 300000 with cols = 100; allowed are 0 to 232448"),
        (launch('shared = "-1"'), "shared: `-1` is -1; allowed are 0 to"),
        (launch('args = ["x", "1 // (cols - 100)"]'), "args[1]: `1 // (cols - 100)` divides by zero with cols = 100"),
        (launch('when = "1 % (rows - 6)"'), "when: `1 % (rows - 6)` divides by zero with rows = 6"),
        (launch('group = "g"\n[group.g]\nrepeat = 4097'), "group `g`: repeat: `4097` is 4097; allowed are 0 to 4096"),
        (launch('group = "g"\n[group.g]\nrepeat = "-rows"'), "group `g`: repeat: `-rows` is -6 with rows = 6"),
        (
            launch('group = "g"') + "\n" + launch('group = "g"\n[group.g]\nrepeat = 4096'),
            "the plan makes more than 4096 launches; a group repeats too often",
        ),
        (buffer("rows - 6"), "line 2: buffer `b`: shape[0]: `rows - 6` is 0 with rows = 6; allowed are 1 to"),
        (buffer("2 ** 34 + 1"), "its buffers take 68719476740 bytes (`b` [17179869185]); at most 68719476736"),
        (buffer("2 ** 20", "2 ** 20", "2 ** 20"), "at most 68719476736 are allowed"),
    ],
)  # fmt: skip
def test_limits(body: str, phrase: str) -> None:
    with pytest.raises(PlanError) as error:
        resolve(plan_of(body))
    assert phrase in str(error.value) and "k.cu" in str(error.value)


def test_a_failing_repeat_tells_its_number() -> None:
    body = launch('group = "g"\n[group.g]\nrepeat = 3', grid='["2 - i"]')
    with pytest.raises(PlanError, match=re.escape("grid[0]: `2 - i` is 0 with i = 2; allowed are 1 to")):
        resolve(plan_of(body))


def test_an_unknown_target_says_which_there_are() -> None:
    with pytest.raises(PlanError, match="no such target 'gpu'; there are cpu, cuda"):
        parse_plan(header(CUDA), OPERATOR, "gpu")
