"""Prompts of language models: Jinja templates beside this file, filled with what is known of kernel and operator.

A prompt depends on request, parents, earlier requests and operator alone: the same request asks the same question.
What candidates wrote, or what tools quote of it, stands in fences that are marked `untrusted`, which the system message
tells models to read as data.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fitness.words import digits, in_words
from mutators.base import Earlier, Kind, Message, Parent, Request
from mutators.briefing import Briefing, Origin
from mutators.line_edits import numbered
from mutators.prompts import informed
from operators.definition.spec import Operator, Scalar, Task, Tensor
from operators.dtypes import DTYPES, resolve_dtype
from operators.expression import FUNCTIONS
from operators.plan.reading import FACTS

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
MAX_MESSAGE = 4000
"""Characters of a compiler's or verifier's message; what does not fit is left out of its middle."""
MAX_TRIED = 300
"""The same for one message or description of what was tried before."""
UNTRUSTED = "untrusted"
"""Word that marks the fences of text that comes from candidates."""


def conversation(
    name: str,
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    earlier: tuple[Earlier, ...] = (),
    *,
    by_tools: bool = False,
) -> tuple[Message, ...]:
    """Return the system and the user message of the request's template, or else of the template `name`.

    A template is a file beside this module, without `.md.j2`, such as `rewrite`; or one beside a user's own module,
    as `module:name`. Of the request's params it shows `advice` (what to do, in words), `profile` (lines of a profiler,
    in place of those that the first parent brings along), `tried` (earlier attempts: tables with `description`,
    `status` and, where known, `speedup` over the parent and `message`), `device` (what the kernel runs on) and the
    workloads of `workload_set`. `earlier` are the requests that `request.earlier` names: it has them by id, and those
    of its context as a list. Its filter `untrusted` puts what a candidate or a model wrote into a marked fence.

    The system message has what `informed.constants` says of machine and verification, and `told` what `informed.told`
    makes of the first parent's briefing; the param `dialect` may be `cute`, for kernels that are to be written with
    CuTe, and `form` may be `lines`, for answers as `mutators.line_edits` reads them. Who is asked for words is told
    nothing of the form of kernels' answers. The user message ends with that form, unless kernels are handed in
    `by_tools`: a small model that reads of it far above often stops after the answer's first line.
    """
    context = _context(request, parents, operator, earlier)
    system = _environment().get_template("system.md.j2").render(context)
    return {"role": "system", "content": system.strip()}, _asked(name, request, context, by_tools=by_tools)


def follow_up(
    name: str,
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    earlier: tuple[Earlier, ...],
    *,
    by_tools: bool = False,
) -> Message:
    """Return the next user message of the conversation `request.thread`, of the template that `conversation` takes.

    The template has `previous`, the request whose conversation goes on, and `shown`, whether the first parent's file
    stands in its last answer as it is.
    """
    return _asked(name, request, _context(request, parents, operator, earlier), by_tools=by_tools)


def continued(
    name: str,
    request: Request,
    parents: tuple[Parent, ...],
    operator: Operator,
    earlier: tuple[Earlier, ...],
    *,
    first: str,
) -> tuple[Message, ...]:
    """Return the conversation `request.thread` with its next message; without it a new one, by the template `first`."""
    said = next((each.messages for each in earlier if each.request.id == request.thread), ())
    if not said:
        return conversation(first, request, parents, operator, earlier)
    return (*said, follow_up(name, request, parents, operator, earlier))


def _asked(name: str, request: Request, context: Mapping[str, Any], *, by_tools: bool) -> Message:
    user = _environment().get_template(f"{request.template or name}.md.j2").render(context).strip()
    if not by_tools and not context["asks_words"]:
        user = f"{user}\n\n{rendered('form', form=request.params.get('form', ''))}"
    return {"role": "user", "content": user}


def rendered(name: str, **context: Any) -> str:
    """Return what the template `name` says."""
    return _environment().get_template(f"{name}.md.j2").render(context).strip()


def complaint(reason: str, *, mending: bool = False) -> Message:
    """Return what a model hears whose answer could not be used.

    `mending`: it was to mend its latest draft.
    """
    if mending:
        return fault(f"Your answer could not be used:\n\n{untrusted(reason)}")
    template = _environment().get_template("complaint.md.j2")
    return {"role": "user", "content": template.render(reason=reason).strip()}


def fault(found: str) -> Message:
    """Return what a model hears whose draft has a fault; `found` says so, with what is not to be trusted in fences."""
    template = _environment().get_template("fault.md.j2")
    return {"role": "user", "content": template.render(found=found).strip()}


@lru_cache
def _environment() -> Environment:
    from jinja2 import ChoiceLoader, Environment, FileSystemLoader, FunctionLoader, StrictUndefined

    made = Environment(
        loader=ChoiceLoader([FileSystemLoader(FOLDER), FunctionLoader(_beside_module)]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    made.filters |= {
        "fenced": fenced,
        "untrusted": untrusted,
        "listed": listed,
        "shortened": shortened,
        "percent": informed.percent,
        "numbered": numbered,
        "digits": digits,
    }
    return made


def _beside_module(name: str) -> str | None:
    """The template `module:file` of a user's own package."""
    module, colon, file = name.partition(":")
    found = find_spec(module) if colon else None
    if found is None or found.origin is None:
        return None
    return Path(found.origin).with_name(file).read_text(encoding="utf-8")


def fenced(text: str, language: str = "") -> str:
    """The text in a fence that nothing inside it can close."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def untrusted(text: str, language: str = "") -> str:
    """The text in a fence that nothing inside it can close, and that says what the text is."""
    return fenced(text, f"{language} {UNTRUSTED}".strip())


def listed(lines: Iterable[str]) -> str:
    """The lines as items of a list, each on one line, so that none can pass for another one."""
    return "\n".join(f"- {' '.join(line.split())}" for line in lines)


def shortened(text: str, length: int = MAX_MESSAGE) -> str:
    """At most about `length` characters, of the beginning and the end."""
    if len(text) <= length:
        return text
    return f"{text[: length * 2 // 3].rstrip()} [...] {text[-(length // 3) :].lstrip()}"


def _context(
    request: Request, parents: tuple[Parent, ...], operator: Operator, earlier: tuple[Earlier, ...]
) -> dict[str, Any]:
    task, params = request.task, request.params
    by_id = {each.request.id: each for each in earlier}
    previous = by_id.get(request.thread)
    chosen = params.get("workload_set")
    workloads = [w for w in operator.workloads if not chosen or w.set == chosen]
    tried = [_attempt(entry) for entry in params.get("tried", ())]
    profile = params.get("profile") or (parents[0].profile if parents else ())
    context: dict[str, Any] = {
        "operator": operator,
        "target": task.target,
        **_signature(operator, task),
        "workloads": workloads,
        "device": params.get("device", ""),
        "facts": sorted(FACTS[task.target] - {"blocks_per_sm"}),
        "functions": list(FUNCTIONS),
        "kernels": [_kernel(parent, task.target) for parent in parents],
        "diff": _diff(parents),
        "advice": params.get("advice", ""),
        "profile": profile,
        "tried": tried,
        "params": params,
        "asks_words": request.kind is Kind.SAY and not params.get("as_code"),
        "earlier": {name: _earlier(each) for name, each in by_id.items()},
        "context": [_earlier(by_id[name]) for name in request.context],
        "previous": _earlier(previous) if previous else None,
        "shown": bool(previous and parents and previous.messages and _stands_in(parents[0], previous)),
    }
    briefing = (parents[0].briefing if parents else None) or Briefing()
    told = informed.told(briefing, operator, task, parents, workloads)
    told |= {"tried": [*tried, *told["tried"]], "profile": informed.unplaced(profile, told["place"])}
    constants = informed.constants(briefing.device, operator, task, str(params.get("dialect", "")))
    origin = _origin(briefing.origin, operator, parents) if briefing.origin else None
    return context | constants | {"told": told, "origin": origin}


def _signature(operator: Operator, task: Task) -> dict[str, Any]:
    """The types and the arguments of a task's kernels."""
    dtypes = {name: resolve_dtype(name, task.dtype) for name in ("T", "ACC")}
    return {
        "types": {name: (dtype.name, _type_name(dtype.name, task.target)) for name, dtype in dtypes.items()},
        "tensors": [_tensor(t, task.target) for t in operator.tensors],
        "scalars": [_scalar(s, task.target) for s in operator.scalars],
    }


def _origin(origin: Origin, operator: Operator, parents: tuple[Parent, ...]) -> dict[str, Any]:
    """The kernel that a child is to take over the design of, and the naive one of its own task if no parent is that."""
    naive = operator.naive(origin.task.target)
    return {
        "task": str(origin.task),
        "formula": origin.operator.formula,
        "source": origin.kernel.source,
        "values": dict(origin.kernel.values),
        "speedup": str(origin.speedup),
        "standing": [f"{workload}: {ratio}" for workload, ratio in origin.standing.items()][: informed.MOST_ROWS],
        "helped": [informed.attempt(each, origin.task) for each in origin.helped],
        "naive": "" if any(parent.kernel.source == naive for parent in parents) else naive,
        **_signature(origin.operator, origin.task),
    }


def _type_name(dtype: str, target: str) -> str:
    return DTYPES[dtype].cpp if target == "cpu" else DTYPES[dtype].cuda


def _spelled(dtype: str, target: str) -> str:
    """The type that a specification calls `dtype` as a kernel writes it."""
    return dtype if dtype in ("T", "ACC") else _type_name(dtype, target)


def _tensor(tensor: Tensor, target: str) -> dict[str, str]:
    const = "const " if tensor.role == "in" else ""
    shape = ", ".join(axis.text for axis in tensor.shape)
    roles = {"in": "input", "out": "output", "inout": "input and output"}
    kind = f"{const}{_spelled(tensor.dtype, target)}*"
    return {"name": tensor.name, "type": kind, "shape": f"[{shape}]", "role": roles[tensor.role]}


def _scalar(scalar: Scalar, target: str) -> dict[str, str]:
    return {"name": scalar.name, "type": _spelled(scalar.dtype, target), "value": f"{scalar.value:g}"}


def _kernel(parent: Parent, target: str) -> dict[str, Any]:
    return {
        "source": parent.kernel.source,
        "values": dict(parent.kernel.values),
        "verdict": informed.verdict(parent.evaluation, target=target) if parent.evaluation else None,
    }


def _earlier(each: Earlier) -> dict[str, Any]:
    """An earlier request as templates show it."""
    return {
        "role": each.request.role or each.request.mutator,
        "text": each.text,
        "description": each.description,
        "failure": each.failure,
        "metrics": dict(each.metrics),
        "source": each.kernel.source if each.kernel else "",
        "verdict": informed.verdict(each.evaluation, target=each.request.task.target) if each.evaluation else None,
    }


def _stands_in(parent: Parent, previous: Earlier) -> bool:
    return parent.kernel.source.strip() in (previous.messages[-1]["content"] or "")


def _attempt(entry: Mapping[str, Any]) -> str:
    """One line for one earlier attempt."""
    description = shortened(entry["description"], MAX_TRIED)
    speedup = f", {digits(entry['speedup'])} times as fast as this kernel" if entry.get("speedup") is not None else ""
    message = f": {shortened(' '.join(entry['message'].split()), MAX_TRIED)}" if entry.get("message") else ""
    return f"{description}: {in_words(entry['status'])}{speedup}{message}"


def _diff(parents: tuple[Parent, ...]) -> str:
    """The first kernel's changes of the second, if there are two."""
    if len(parents) < 2:
        return ""
    new, old = (parent.kernel.source.splitlines() for parent in parents[:2])
    return "\n".join(list(unified_diff(old, new, "before", "after", lineterm="", n=2))[:200])
