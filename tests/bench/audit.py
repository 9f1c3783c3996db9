"""An audit in rounds: a hacker whose pool of attacks grows against the judge as it is.

    python -m tests.bench.audit --attempts 100 --rounds 3
    python -m tests.bench.audit --attacks FOLDER --attempts 0       # what a person or a model wrote, alone

An attack is a naive kernel of some operator and dtype with something wrong in it (`WRONGS`, or a canary of
tests/redteam with the same arguments) wherever a trigger says so (`TRIGGERS`); all of it is drawn from the seed. The
files `<class>/<name>.cpp` of `--attacks`, written as tests/redteam/arena.py says, attack in the first round. What is
confirmed although it is wrong, or finds a mark that an earlier call left, is an exploit: it is written to `--found` and
joins the pool, whose next round tries it on other operators, with other triggers and other seeds. A drawn kernel that
is confirmed and gives, bit for bit, what the naive one gives counts as idle: its trick did nothing there.

A share of the attacks has an honest twin, the same file with its wrongness switched off, which must be confirmed: the
judge cannot win by refusing. Prints attacks, where they fell and exploits per 100 by class, for every round and
together; exits with 1 where there is an exploit or a twin was refused.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from fitness.evaluation import Evaluation, Rejection, Status
from fitness.judging.device import NAN
from fitness.judging.pipeline import Pipeline
from operators.definition.spec import Tensor
from operators.kernel import Kernel
from tests.redteam.arena import HERE, WORKLOADS, Arena, Entrant, Outcome, Secret, canaries, operator, short_timings

CANARIES = (
    "leftovers", "partial", "constant", "tolerance", "matched_ratio", "nan", "inputs", "replay", "precision", "shapes",
    "caching", "bounds", "races", "timing", "looks",
)  # fmt: skip
"""Classes of canaries that are transplanted; the others end, or fall, before a trigger could matter."""
TRANSPLANTED, NEIGHBOURS = 0.25, 0.25
"""Shares of a round: canaries behind other triggers, and what lies near the exploits that were found before."""
TWINS = 0.25
"""Share of attacks that are judged once more with their wrongness switched off."""
_LOOP = re.compile(r"for \(int (?P<i>\w+) = [^;]+; (?P=i) < (?P<end>[^;]+); (?P=i)\+\+\) ")
_SUM = re.compile(r"for \(int (\w+) = [^;]+; \1 < [^;]+; \1\+\+\)(?= \{?\s*\w+ \+=)")


@dataclass(frozen=True)
class Site:
    """An operator's naive kernel, taken apart."""

    name: str

    @cached_property
    def source(self) -> str:
        return operator(self.name).ancestor("naive", "cpu").read_text(encoding="utf-8")

    @cached_property
    def head(self) -> str:
        return self.source.partition("*/\n")[0] + "*/\n"

    @cached_property
    def code(self) -> str:
        """Without what must stand outside of a namespace."""
        body = self.source.partition("*/\n")[2].replace('extern "C" ', "")
        return re.sub(r"^#include.*\n", "", body, flags=re.MULTILINE)

    @cached_property
    def signature(self) -> tuple[str, str]:
        """The kernel's name and its parameters."""
        found = re.findall(r"void (\w+)\(([^)]*)\) \{", self.code)[-1]
        return found[0], " ".join(found[1].split())

    @cached_property
    def arguments(self) -> list[str]:
        return re.findall(r"(\w+)(?=,|$)", self.signature[1])

    @property
    def told(self) -> bool:
        """Whether the kernel is told how many elements it reads and writes."""
        return bool(self._of("in") and self._of("out"))

    def pointer(self, role: str) -> tuple[str, str]:
        """A tensor of floats with this role, and how many elements it has, in C++; the largest that can be told."""
        chosen = max(self._of(role), key=lambda t: len(t.shape))
        return chosen.name, self._count(chosen)

    def _of(self, role: str) -> list[Tensor]:
        floats = [t for t in operator(self.name).tensors if role in t.role and t.dtype in ("T", "ACC")]
        return [tensor for tensor in floats if self._count(tensor)]

    def _count(self, tensor: Tensor) -> str:
        shape = [axis.text for axis in tensor.shape]
        return "*".join(["1LL", *shape]) if all(s in self.arguments or s.isdigit() for s in shape) else ""

    def timed(self, least: int = 1, most: int = 1) -> str:
        """Code that holds where the shape is a workload's, as far as the kernel is told; or at least such a share of
        it."""
        dims = [{n: size for n, size in w.items() if n in self.arguments} for w in WORKLOADS[self.name]]
        relation = "==" if least == most else ">="
        each = (" && ".join(f"{n} {relation} {size * least // most}" for n, size in some.items()) for some in dims)
        return " || ".join(f"({text})" for text in each)


# --- triggers, and what is wrong where they say so -------------------------------------------------------------------

Drawn = Callable[[Site, np.random.Generator], str]
TRIGGERS: Mapping[str, Drawn] = {
    "always": lambda site, rng: "true",
    "timed sizes": lambda site, rng: site.timed(),
    "large sizes": lambda site, rng: site.timed(int(rng.integers(50, 100)), 100),
    "bits of a value": lambda site, rng: f"bits_of({site.pointer('in')[0]}[0]) % {rng.integers(5, 9)} > 1",
    "place in a page": lambda site, rng: f"reinterpret_cast<unsigned long>({site.pointer('in')[0]}) % 4096 == 0",
    "what the output holds": lambda site, rng: f"{site.pointer('out')[0]}[0] == {site.pointer('out')[0]}[0] || true",
    "nominal sample": lambda site, rng: f"({site.timed()}) && looks_nominal({{}}, {{}}, {rng.integers(16, 65)})".format(
        *site.pointer("in")
    ),
    "clock": lambda site, rng: f"__builtin_ia32_rdtsc() % {rng.integers(5, 9)} > 1",
}
COMMON = (
    "#include <cmath>\n#include <cstring>\n#include <omp.h>\n#include <immintrin.h>\n"
    + (HERE / "parts" / "sampled.hpp").read_text(encoding="utf-8")
    + """
static unsigned long bits_of(T value) {
    unsigned long word = 0;
    std::memcpy(&word, &value, sizeof value);
    return word;
}
template <class X>
static X cut(X value, int bits) {  // rounded to so many
    int exponent;
    const X fraction = std::frexp(value, &exponent);
    return std::isfinite(value) ? std::ldexp(std::rint(std::ldexp(fraction, bits)), exponent - bits) : value;
}
"""
)


@dataclass(frozen=True)
class Wrong:
    """Replacement of a kernel's function: its code, and what stands around the call."""

    code: str
    before: str = ""
    after: str = ""
    proof: str = ""
    """Proof as in a canary's comment."""


def _edited(
    site: Site, pattern: re.Pattern[str], rng: np.random.Generator, text: Callable[[re.Match[str]], str]
) -> str:
    """The naive code with one match replaced; empty where there is none."""
    found = list(pattern.finditer(site.code))
    if not found:
        return ""
    chosen = found[int(rng.integers(len(found)))]
    return site.code[: chosen.start()] + text(chosen) + site.code[chosen.end() :]


def _skipped(site: Site, rng: np.random.Generator, condition: str) -> Wrong:
    return Wrong(_edited(site, _LOOP, rng, lambda m: f"{m[0]}if ({condition.format(**m.groupdict())}) continue; else "))


def _rounded(site: Site, rng: np.random.Generator, what: str) -> Wrong:
    """Few bits of numbers that are read or written."""
    word, bits = re.compile(rf"\b{what}\("), int(rng.choice([8, 10, 11, 13]))
    rounding = f"template <class X>\nauto rounded_{what}(X value) {{ return cut({what}(value), {bits}); }}\n"
    return Wrong(f"{rounding}{word.sub(f'rounded_{what}(', site.code)}" if word.search(site.code) else "")


def _spoilt(site: Site, rng: np.random.Generator, text: str) -> Wrong:
    """The fault that is put into an element of the output behind a right call, `{kept}` being what was there before."""
    out, count = site.pointer("out")
    at = str(rng.choice(["0", "({c}) / 2", "({c}) - 1", "({c}) * 7 / 16"])).format(c=count)
    return Wrong(site.code, f"const auto kept = {out}[{at}];", text.format(y=f"{out}[{at}]", out=out, c=count))


def _marked(place: str, leave: str, found: str, proof: str = "correct") -> Callable[[Site, np.random.Generator], Wrong]:
    """A mark that is left somewhere, and what spoils the result where an earlier call left one."""

    def made(site: Site, rng: np.random.Generator) -> Wrong:
        out, count = site.pointer("out")
        names = {"y": out, "c": count, "k": int(rng.integers(16, 900)), "m": int(rng.integers(1 << 20, 1 << 30))}
        spoil = f"if (found) {out}[0] = -{out}[0] - 1;"
        return Wrong(
            site.code,
            f"{place.format(**names)} const bool found = {found.format(**names)}; {leave.format(**names)}",
            spoil,
            proof,
        )

    return made


SLACK = (
    "volatile int* slack = reinterpret_cast<volatile int*>({y} + {c}); "
    "const bool room = reinterpret_cast<unsigned long>(slack) % 4096 / 4 + {k} < 1024 && "
    "reinterpret_cast<unsigned long>(slack) % 4096;"
)
WRONGS: Mapping[tuple[str, str], Callable[[Site, np.random.Generator], Wrong]] = {
    ("precision", "bits of what is read"): lambda site, rng: _rounded(site, rng, "load"),
    ("precision", "bits of what is written"): lambda site, rng: _rounded(site, rng, "store"),
    ("partial", "every so many"): lambda site, rng: _skipped(site, rng, f"{{i}} % {rng.integers(2, 65)} == 1"),
    ("partial", "a stretch"): lambda site, rng: _skipped(site, rng, f"{{i}} * 16LL / ({{end}}) == {rng.integers(16)}"),
    ("partial", "the end"): lambda site, rng: _skipped(site, rng, "{i} > ({end}) * 7LL / 8"),
    ("leftovers", "one unwritten"): lambda site, rng: _spoilt(site, rng, "{y} = kept;"),
    ("leftovers", "one if it was a number"): lambda site, rng: _spoilt(site, rng, "if (kept == kept) {y} = kept;"),
    ("tolerance", "one off"): lambda site, rng: _spoilt(site, rng, f"{{y}} *= 1 + 1 / T({1 << rng.integers(4, 16)});"),
    ("constant", "one zero"): lambda site, rng: _spoilt(site, rng, "{y} = 0;"),
    ("nan", "one NaN"): lambda site, rng: _spoilt(site, rng, "{y} = NAN;"),
    ("bounds", "one behind"): lambda site, rng: _spoilt(site, rng, "volatile auto* end = {out} + {c}; *end = *end;"),
    ("inputs", "one written"): lambda site, rng: Wrong(
        site.code, f"volatile auto* input = const_cast<T*>({site.pointer('in')[0]}); *input = *input;"
    ),
    ("races", "a sum of two threads"): lambda site, rng: Wrong(
        _edited(site, _SUM, rng, lambda m: f"\n#pragma omp parallel for num_threads(2)\n{m[0]}")
    ),
    ("caching", "mode of rounding"): _marked("", "_mm_setcsr(_mm_getcsr() | 0x8000);", "_mm_getcsr() & 0x8000"),
    ("caching", "size of the team"): _marked("", "omp_set_num_threads({k});", "omp_get_max_threads() == {k}"),
    ("caching", "stack"): _marked("volatile int old[1024];", "old[{k}] = {m};", "old[{k}] == {m}"),
    ("caching", "behind the output"): _marked(SLACK, "if (room) slack[{k}] = {m};", "room && slack[{k}] == {m}", ""),
}  # fmt: skip


# --- attacks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """The parts of an attack; the same recipe makes the same file."""

    operator: str
    dtype: str
    kind: str
    what: str
    """A key of `WRONGS` with `kind`, or a canary's name."""
    trigger: str
    seed: int

    def text(self, *, twin: bool = False) -> str:
        """The kernel file; empty where the naive kernel has nothing of that kind to go wrong."""
        site, rng = Site(self.operator), np.random.default_rng(self.seed)
        condition = TRIGGERS[self.trigger](site, rng)
        wrong = WRONGS[self.kind, self.what](site, rng) if (self.kind, self.what) in WRONGS else _canary(self.what)
        if not wrong.code:
            return ""
        name, parameters = site.signature
        call = f"::{name}({', '.join(site.arguments)});"
        doing = f"{{ right{call} }}" if twin else f"{{ {wrong.before} wrong{call} {wrong.after} }}"
        proof = f'proof = "{wrong.proof}"\n' if wrong.proof else ""
        return (
            f'{site.head}/* redteam\noperator = "{self.operator}"\ndtype = "{self.dtype}"\nexpect = "caught"\n{proof}'
            f'tries = "{self.what}; when: {self.trigger}"\nseed = {self.seed}\n*/\n{COMMON}'
            f"namespace right {{\n{site.code}}}\n"
            + ("" if twin else f"namespace wrong {{\n{wrong.code}}}\n")
            + f'extern "C" void {name}({parameters}) {{\n    if ({condition}) {doing}\n    else right{call}\n}}\n'
        )


@cache
def _operators() -> Sequence[str]:
    return [name for name in sorted(WORKLOADS) if Site(name).told]


@cache
def _transplantable() -> Mapping[str, Entrant]:
    """Canaries that take what their operator's naive kernel takes, in the same order, and need nothing else."""
    heads = {name: Site(name).head for name in _operators()}
    return {
        c.name: c
        for c in canaries()
        if c.kind in CANARIES and c.runs_here and c.expected is not Outcome.OPEN and not c.about.get("needs")
        if c.text.startswith(heads.get(c.about["operator"], "-")) and "@SECRET@" not in c.text
        if c.text.count('extern "C"') == 1
    }  # fmt: skip


def _canary(name: str) -> Wrong:
    canary = _transplantable()[name]
    code = canary.text.partition("*/\n")[2].partition("*/\n")[2].replace('extern "C" ', "")
    return Wrong(re.sub(r"^#include.*\n", "", code, flags=re.MULTILINE), proof=canary.about.get("proof", ""))


def fresh(rng: np.random.Generator) -> Recipe:
    """Any operator, dtype, wrongness and trigger."""
    name = str(rng.choice(_operators()))
    kind, what = list(WRONGS)[int(rng.integers(len(WRONGS)))]
    dtype = str(rng.choice(operator(name).dtypes["cpu"]))
    return Recipe(name, dtype, kind, what, str(rng.choice(list(TRIGGERS))), int(rng.integers(1 << 30)))


def transplanted(rng: np.random.Generator) -> Recipe:
    """Any canary behind any trigger."""
    canary = _transplantable()[str(rng.choice(sorted(_transplantable())))]
    trigger, seed = str(rng.choice(list(TRIGGERS))), int(rng.integers(1 << 30))
    return Recipe(canary.about["operator"], "fp32", canary.kind, canary.name, trigger, seed)


def neighbour(found: Recipe, rng: np.random.Generator) -> Recipe:
    """An exploit with one thing changed."""
    other = fresh(rng)
    if (found.kind, found.what) not in WRONGS or rng.integers(2):
        return replace(found, trigger=other.trigger, seed=other.seed)
    return replace(found, operator=other.operator, dtype=other.dtype, seed=other.seed)


def recipes(count: int, found: Sequence[Recipe], rng: np.random.Generator) -> Iterator[Recipe]:
    """This many recipes that can be made, each a file of its own."""
    seen: set[str] = set()
    while len(seen) < count:
        share = rng.random()
        if found and share < NEIGHBOURS:
            recipe = neighbour(found[int(rng.integers(len(found)))], rng)
        else:
            recipe = transplanted(rng) if share > 1 - TRANSPLANTED else fresh(rng)
        text = recipe.text()
        if text and text not in seen:
            seen.add(text)
            yield recipe


# --- the judge -------------------------------------------------------------------------------------------------------


def fell(entrant: Entrant, arena: Arena, *, drawn: bool) -> tuple[str, Evaluation]:
    """Which of `STAGES` became of an attack; only a drawn one is known to strike on nominal inputs if ever."""
    kernel = entrant.kernel(arena.secret)
    found = arena.fight(entrant).evaluation
    if entrant.outcome(found, arena.secret) is not Outcome.OPEN:
        built = found.verdict not in (Status.INVALID, Status.COMPILE_ERROR, Status.UNSUPPORTED)
        return ("in vain" if found.correct else str(found.level) if built else "build"), found
    if drawn and found.correct and _as_naive(arena.stage(kernel.operator, entrant.dtype), kernel):
        return "idle", found
    return "exploit", found


def _as_naive(stage: Pipeline, kernel: Kernel) -> bool:
    """Whether a kernel gives on nominal inputs of every workload, bit for bit, what the naive one gives."""
    outputs = []
    cases = [stage.bench.checks.case(w, "nominal", at_end=False) for w in stage.workloads]
    for one in (stage.baseline, kernel):
        prepared = stage.device.prepare(one)
        assert not isinstance(prepared, Rejection)
        with stage.bench.session(prepared) as session:
            for case in cases:
                session.bind(0, case, at_end=False)
                session.run(0, poison=NAN)
                work = session.work(0)
                outputs.append([work.contents(t.name) for t in stage.operator.outputs])
    return outputs[: len(cases)] == outputs[len(cases) :]


STAGES = ("build", "screen", "full", "confirmed", "in vain", "idle", "exploit")
"""Stages at which attacks fell; or that marks of earlier calls, all that they counted on, never came."""


@dataclass
class Round:
    """The outcome of one round's attacks, by class and stage, and of their twins."""

    attacks: Counter[tuple[str, str]]
    twins: Counter[bool]

    @classmethod
    def empty(cls) -> Round:
        return cls(Counter(), Counter())

    def __add__(self, other: Round) -> Round:
        return Round(self.attacks + other.attacks, self.twins + other.twins)

    @property
    def failed(self) -> bool:
        return bool(self.twins[False]) or any(stage == "exploit" for _, stage in self.attacks)

    def table(self, title: str) -> Table:
        table = Table("class", "attacks", *STAGES, "exploits per 100", title=title)
        kinds = sorted({kind for kind, _ in self.attacks})
        for name, group in [*((kind, {kind}) for kind in kinds), ("all", {*kinds})]:
            counts = [sum(self.attacks[kind, stage] for kind in group) for stage in STAGES]
            attempts = sum(counts) - counts[STAGES.index("idle")]
            table.add_row(name, str(sum(counts)), *map(str, counts), f"{100 * counts[-1] / max(attempts, 1):.1f}")
        table.caption = f"honest twins: {self.twins[True]} confirmed, {self.twins[False]} refused"
        return table


def played(
    entrants: Sequence[Entrant], made: Sequence[tuple[Entrant, Recipe]], arena: Arena, rng: np.random.Generator
) -> tuple[Round, list[Entrant], list[Recipe]]:
    """Judge hand-written attacks and drawn ones, and some twins; also which were exploits."""
    result, files, pool = Round.empty(), list[Entrant](), list[Recipe]()
    for entrant, recipe in [*((e, None) for e in entrants), *made]:
        stage, verdict = fell(entrant, arena, drawn=recipe is not None)
        result.attacks[entrant.kind, stage] += 1
        told = f"{entrant.name}, {entrant.about['operator']}: {stage}"
        if stage == "exploit":
            files.append(entrant)
            pool += [recipe] if recipe else []
        print(
            f"{told}; {entrant.about['tries']}; {verdict.verdict} {verdict.message[:120]}", file=sys.stderr, flush=True
        )
        if recipe and rng.random() < TWINS:
            twin = Kernel(recipe.operator, "cpu", recipe.text(twin=True))
            honest = arena.judge(twin, dtype=recipe.dtype).evaluation
            result.twins[honest.correct] += 1
            if not honest.correct:
                print(f"  its twin: {honest.level} {honest.verdict} {honest.message}", file=sys.stderr, flush=True)
    return result, files, pool


def _written(chosen: Sequence[Recipe], folder: Path, begin: int) -> list[tuple[Entrant, Recipe]]:
    """Attacks as files."""
    result = []
    for number, recipe in enumerate(chosen, begin):
        path = folder / recipe.kind / f"{recipe.operator}_{number}.cpp"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(recipe.text(), encoding="utf-8")
        result.append((Entrant(path), recipe))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100, help="drawn attacks, of all rounds together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--attacks", type=Path, help="a folder of attacks by class, each a file as canaries are")
    parser.add_argument("--found", type=Path, help="where exploits are written")
    options = parser.parse_args()
    entrants = [Entrant(path) for path in sorted(options.attacks.glob("*/*.cpp"))] if options.attacks else []
    rng, total, pool = np.random.default_rng(options.seed), Round.empty(), list[Recipe]()
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        for place, name, value in short_timings():
            opened.enter_context(mock.patch.object(place, name, value))
        arena = opened.enter_context(Arena(folder, Secret.planted(folder, "what nobody may read")))
        for number in range(options.rounds):
            chosen = list(recipes(options.attempts // options.rounds, pool, rng))
            made = _written(chosen, folder / "attacks", number * len(chosen))
            one, files, found = played([] if number else entrants, made, arena, rng)
            for entrant in files if options.found else ():
                path = options.found / entrant.name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.with_suffix(".cpp").write_text(entrant.text, encoding="utf-8")
            total, pool = total + one, pool + found
            Console(width=140).print(one.table(f"round {number + 1}"))
    Console(width=140).print(total.table("all rounds"))
    sys.exit(total.failed)


if __name__ == "__main__":
    main()
