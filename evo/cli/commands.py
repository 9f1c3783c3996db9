"""The command line. Only typer is imported here; every command imports what it needs when it runs."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evo.cli import INTERRUPTED
from evo.cli.compare import compares
from evo.cli.completion import operator_names
from evo.cli.operators import machine, own, show_pages
from evo.cli.outside import outside
from evo.cli.runs import looks
from evo.cli.searching import show_search, show_summary
from evo.cli.shared import (
    FAILED,
    RUNS,
    USAGE,
    AsJson,
    Hub,
    LogAs,
    Notices,
    RunName,
    Runs,
    backend_named,
    say,
)
from evo.report.output import as_json as json_of
from evo.report.output import login, raw, safe_streams
from fitness.install import evo_command
from operators.errors import MachineError, UserError
from operators.identity import short

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typer.models import CommandInfo

    from evo.api import Run, StoredKernel
    from evo.config import RunConfig
    from evo.report.status import Standing

app = typer.Typer(
    help="Evolutionary search over populations of GPU and CPU kernels.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Models = Annotated[
    list[str],
    typer.Option(
        "--llm",
        metavar="MODEL",
        help="Language model as litellm names it, cli/PROGRAM or outside; repeatable. Default: none.",
    ),
]
Wait = Annotated[
    float, typer.Option(metavar="SECONDS", min=0, help="With nothing to do, wait so long for what evo tell brings.")
]
MoreBudget = Annotated[
    list[str], typer.Option("--budget", help="60s, 8h, 500evals, 5usd, 2Mtok, of the whole run; repeatable.")
]
RayOption = Annotated[bool, typer.Option("--ray", help="Work in Ray actors, on a cluster started for this run.")]
RayAddress = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Work on this Ray cluster, on all its machines.")
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Go on without this terminal, and say how to follow; see evo attach.")
]
Trackers = Annotated[
    list[str],
    typer.Option("--track", metavar="TRACKER", help="Tell mlflow, wandb, trackio or otel of the run; repeatable."),
]
UsageError: Any = typer.BadParameter.__base__
"""Words that are no command: typer has the class under a private name."""


def _version(wanted: bool) -> None:
    if wanted:
        from evo.version import engine_version

        print(f"kernel-evo {engine_version()}")
        raise typer.Exit


def main() -> None:
    """Entry point: one line and exit code 2 for what the user can cure, 1 where a machine fails."""
    with safe_streams():  # errors quote compilers, models and files, so they too pass through it
        try:
            sys.exit(_narrowed(sys.argv[1:])(standalone_mode=False) or 0)
        except UsageError as error:
            if not sys.argv[1:]:  # its words are the help
                error.show()
            else:
                # An option without its value is an error without a context.
                named = f"evo {sys.argv[1]}" if _commands(sys.argv[1:2]) else "evo"
                command = error.ctx.command_path if error.ctx else named
                say(f"{' '.join(error.format_message().split()).rstrip('.')}; `{command} --help` says what there is")
            sys.exit(USAGE)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        except UserError as error:
            say(error)
            sys.exit(FAILED if isinstance(error, MachineError) else USAGE)
        except BrokenPipeError:
            sys.exit(FAILED)
        except OSError as error:
            say(f"{error.filename or 'output'}: {error.strerror or error}")
            sys.exit(FAILED)
        except Exception:  # noqa: BLE001 (the border to the terminal: a traceback may quote anything)
            traceback.print_exc()
            sys.exit(FAILED)


def _narrowed(words: Sequence[str]) -> typer.Typer:
    """The app with no more than the command that is asked for: typer would first build the options of all of them."""
    found = _commands(words[:1])
    if not found:
        return app
    narrow = copy(app)
    narrow.registered_groups, narrow.registered_commands = [], found
    return narrow


def _commands(names: Sequence[str]) -> list[CommandInfo]:
    every = (app, *(group.typer_instance for group in app.registered_groups if group.typer_instance))
    return [each for part in every for each in part.registered_commands if _name(each) in names]


def _name(command: CommandInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


@app.callback()
def evo(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version, and end.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """Evolutionary search over populations of GPU and CPU kernels."""


@app.command()
def run(
    operators: Annotated[
        list[str],
        typer.Argument(
            metavar="OPERATOR...",
            help="Names (`evo operators` lists them), folders of your own, or problems that `evo import` reads.",
            autocompletion=operator_names,
        ),
    ] = [],  # noqa: B006
    family: Annotated[
        list[str], typer.Option(help="All operators of this family; repeatable. Default: those that are named.")
    ] = [],  # noqa: B006
    target: Annotated[str, typer.Option(help="cpu (default) or cuda.")] = "",
    dtype: Annotated[list[str], typer.Option(help="Element type; repeatable. Default: the operator's first.")] = [],  # noqa: B006
    ancestors: Annotated[str, typer.Option(help="Kernel files to start from: naive or all (default).")] = "",
    from_: Annotated[
        list[Path],
        typer.Option("--from", metavar="FILE", help="Start from this kernel file of yours as well; repeatable."),
    ] = [],  # noqa: B006
    strategy: Annotated[
        str,
        typer.Option(
            help="islands (default); agent, astra, cudaforge, cudamaster, cutegen, refine (published loops); "
            "best_of_n, one_shot, random, tune_only (controls); or a module:Class."
        ),
    ] = "",
    llm: Models = [],  # noqa: B006
    budget: Annotated[list[str], typer.Option(help="60s (default), 8h, 500evals, 5usd, 2Mtok; repeatable.")] = [],  # noqa: B006
    seed: Annotated[
        int | None, typer.Option(help="Everything random in the search comes from here. Default: 0.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Evaluation workers. Default: by the machine.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Cores that a kernel on the cpu target runs on. Default: by the machine.")
    ] = None,
    set_: Annotated[list[str], typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeatable.")] = [],  # noqa: B006
    config: Annotated[Path | None, typer.Option(help="TOML file with the same settings. Default: none.")] = None,
    wait: Wait = 0.0,
    track: Trackers = [],  # noqa: B006
    notify: Notices = [],  # noqa: B006
    log: LogAs = "",
    ray: RayOption = False,
    ray_address: RayAddress = None,
    detach: Detach = False,
    runs: Runs = RUNS,
    schema: Annotated[bool, typer.Option("--schema", help="List all settings and mutators instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Search for faster kernels of one or several operators."""
    if schema:
        from evo.report.reference import run_pages

        show_pages(run_pages(), as_json=as_json)
        return
    if detach:
        _detach(runs, as_json=as_json)
        return
    began = time.time()
    told = _told(track, notify, log)
    from evo.budget import parse_limits
    from evo.config import read_config
    from evo.outside.importing import operators_of
    from evo.session import Session, start
    from operators.catalog import of_family

    named = [*operators, *(name for wanted in family for name in of_family(wanted))]
    if not named and not config and not any(setting.partition("=")[0].strip() == "operators" for setting in set_):
        raise UserError("name an operator, such as `evo run softmax`, or a --family; `evo operators` lists them")
    changes: dict[str, Any] = {
        "operators": named, "target": target or None, "dtypes": dtype,
        "ancestors": ancestors or None, "strategy": strategy or None,
        "budget": parse_limits(budget) or None, "seed": seed, "workers": workers,
        "threads": threads, "models": llm,
    }  # fmt: skip
    settings = read_config(config, changes, set_)
    where = backend_named(ray_address, ray=ray)
    if settings.llm:
        from mutators.llm.client import check_models

        check_models(settings.llm)  # a machine is measured for models first, which takes seconds
    resolved = settings.model_copy(update={"operators": operators_of(settings.operators)}).resolved()
    folder = _new_run(runs, resolved, from_)
    session = Session(ray=where, began=began, wait_s=wait)
    show_search(folder, lambda progress: start(resolved, folder, progress, session), as_json=as_json, told=told)


@app.command()
def resume(
    run: RunName,
    budget: MoreBudget = [],  # noqa: B006
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Only confirm the leaders, however long it takes.")
    ] = False,
    wait: Wait = 0.0,
    track: Trackers = [],  # noqa: B006
    notify: Notices = [],  # noqa: B006
    log: LogAs = "",
    ray: RayOption = False,
    ray_address: RayAddress = None,
    detach: Detach = False,
    owner: Annotated[int, typer.Option("--owner", hidden=True)] = 0,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Continue a run that was stopped or killed, or give it a larger budget."""
    began = time.time()
    if owner:
        from evo.workers.parent import end_with

        end_with(owner, signal.SIGINT)
    from evo.budget import parse_limits
    from evo.folders import find_run
    from evo.session import Session
    from evo.session import resume as continue_run

    folder, limits, where = find_run(runs, run), parse_limits(budget), backend_named(ray_address, ray=ray)
    if detach:
        _detach(runs, folder, as_json=as_json)
        return
    told = _told(track, notify, log)
    session = Session(ray=where, began=began, wait_s=wait, only_confirm=confirm)
    show_search(folder, lambda progress: continue_run(folder, limits, progress, session), as_json=as_json, told=told)


@app.command()
def replay(run: RunName = "last", runs: Runs = RUNS, as_json: AsJson = False) -> None:
    """Repeat a run from its stored answers and evaluations, and say whether it is the same one, kernel by kernel."""
    from evo.folders import find_run
    from evo.replay import replay as repeat
    from evo.report.live import Progress

    with Progress() as progress:
        done = repeat(find_run(runs, run), progress)
    if as_json:
        print(json_of({**asdict(done), "equal": done.equal}))
    else:
        print(f"{done.individuals} individuals equal" + (f"; then {done.difference}" if done.difference else ""))
        print(f"run {done.replay}")
    if not done.equal:
        raise typer.Exit(FAILED)


@app.command()
def status(
    run: RunName = "last",
    every: Annotated[bool, typer.Option("--all", help="Every task, also where the terminal is too short.")] = False,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Say whether a run is healthy (exit code 0) or not (1) and why, and where it stands; while it runs or later."""
    from evo.api import Run
    from evo.folders import find_run
    from evo.report.health import health
    from evo.report.status import summary

    opened = Run(find_run(runs, run))
    found = health(opened)
    show_summary(opened, summary(opened), as_json=as_json, every=every, found=found)
    if not found.is_healthy:
        raise typer.Exit(FAILED)


@app.command()
def best(
    run: RunName = "last",
    show: Annotated[bool, typer.Option("--show", help="Print the source.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the kernel to this file.")] = None,
    package: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write it into this new folder, with all that it takes to use it elsewhere."),
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--as",
            metavar="FORMAT",
            help="Write it as a solution of the imported task: kernelbench, flashinfer, sol or gpumode; into a folder "
            "here, or that of --package.",
        ),
    ] = "",
    hub: Hub = False,
    task: Annotated[str, typer.Option(help="Beginning of the task, such as softmax/fp32.")] = "",
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """The best kernel of each task."""
    from evo.api import Run, verdict_words
    from evo.folders import find_run
    from evo.report.status import best_of, standings, taken_lines
    from operators.files import writing

    opened = Run(find_run(runs, run))
    if package or form:
        _package(opened, package, task, form, hub=hub)
        return
    kernels = best_of(opened, task, "--export" if export else "")
    if export:
        with writing(f"--export {export}", "; name a file"):
            if export.exists() and export.read_bytes() != kernels[0].text.encode():
                raise UserError(f"--export {export}: another file is there; name a new one")
            export.write_text(kernels[0].text, encoding="utf-8")
        print(f"{kernels[0].task}: {short(kernels[0].id)} written to {export}", file=sys.stderr)
    elif show:
        for kernel in kernels:
            print(f"// {kernel.task} {short(kernel.id)}, {verdict_words(kernel.verdict)}")
            # To the letter for a file or a pipe; what is only shown may not steer the terminal.
            print(kernel.text, file=sys.stdout if sys.stdout.isatty() else raw(sys.stdout))
    else:
        _show_best(kernels, standings(opened), as_json=as_json)
        for line in taken_lines(opened):
            say(line)


@app.command()
def lineage(
    run: RunName = "last",
    kernel: Annotated[str, typer.Argument(help="Kernel id or its beginning. Default: the best of each task.")] = "",
    principal: Annotated[bool, typer.Option("--principal", help="Only the chain of principal parents.")] = False,
    runs: Runs = RUNS,
    as_json: AsJson = False,
) -> None:
    """Show a kernel's lineage: all its ancestors, parents before children."""
    from evo.api import Run
    from evo.folders import find_run

    with Run(find_run(runs, run)) as opened:
        if kernel:
            found = opened.rows("kernels.like", prefix=kernel)
            if len(found) != 1:
                raise UserError(f"run {opened.id} has no single kernel whose id begins with {kernel}")
            wanted = opened.rows("kernels.proposed", kernel=found[0]["kernel_id"])
        else:
            wanted = opened.rows("kernels.best", task="")
        lineages = [opened.lineage(each["kernel_id"], each["task"], principal=principal) for each in wanted]
    rows = [vars(step) for steps in lineages for step in steps]
    if as_json:
        print(json_of(rows))
        return
    from evo.report.terminal import lineage_table, show

    show(lineage_table(rows))


@app.command()
def evaluate(
    operator: Annotated[str, typer.Argument(help="Name, or folder of your own.", autocompletion=operator_names)],
    file: Annotated[Path, typer.Argument(help="Kernel file.")],
    target: Annotated[str, typer.Option(help="cpu or cuda; default: by the file's ending.")] = "",
    dtype: Annotated[str, typer.Option(help="Element type.")] = "",
    value: Annotated[list[str], typer.Option("--value", metavar="NAME=INTEGER", help="A tunable's value.")] = [],  # noqa: B006
    workload_set: Annotated[str, typer.Option("--workloads", help="Workload set.")] = "",
    profile: Annotated[bool, typer.Option("--profile", help="Also say what holds a correct kernel back.")] = False,
    as_json: AsJson = False,
) -> None:
    """Judge one kernel file as severely as a new best, and print the whole verdict."""
    from evo.evaluate import evaluate_file, profile_lines, verdict_lines
    from evo.report.scoreboard import P_NOTE, p_of_evaluation
    from operators.catalog import load

    evaluations, seen = evaluate_file(
        operator, file, target=target, dtype=dtype, values=value, workload_set=workload_set, profiled=profile
    )
    if as_json:
        levels = [*map(asdict, evaluations)]
        print(json_of([*levels, {"profile": asdict(seen)}] if seen else levels))
    else:
        print("\n".join([*verdict_lines(evaluations), *(profile_lines(seen) if seen else [])]))
        if (scored := p_of_evaluation(load(operator), evaluations[-1])) is not None:
            print(f"score P {scored:.2f}. {P_NOTE}")
    if not evaluations[-1].correct:
        raise typer.Exit(FAILED)


app.add_typer(machine)
app.add_typer(looks)  # behind the commands that are used first
app.add_typer(compares)
app.add_typer(outside)
app.add_typer(own)


def _new_run(runs: Path, settings: RunConfig, files: Sequence[Path]) -> Path:
    """The folder of a run that is about to begin, in whose inbox lie the user's own kernels. It raises UserError."""
    from evo.folders import new_folder
    from evo.inbox import Inbox
    from evo.report.health import too_small
    from evo.session import invitations

    guests = invitations(settings, files, login()) if files else []
    folder = new_folder(runs, settings)
    if little := too_small(settings, runs):
        say(little)
    if guests:
        Inbox(folder).put(guests)
    print(f"run {folder}", file=sys.stderr)
    return folder


def _detach(runs: Path, resumed: Path | None = None, *, as_json: bool) -> None:
    from evo.outside.detached import detach, how_to_follow

    begun = detach(sys.argv[1:], runs, resumed)
    told = {"run": str(begun.folder), "process": begun.process, "log": str(begun.log)}
    print(json_of(told) if as_json else how_to_follow(begun))


def _told(track: Sequence[str], notify: Sequence[str], log: str) -> list[str]:
    """The words of `evo track` for those who are told of a run. It raises UserError where one cannot be."""
    if not (track or notify or log):
        return []
    from evo.track.sinks import sinks

    sinks(track, notify, log)
    words = [
        word for name, values in (("--to", track), ("--notify", notify)) for value in values for word in (name, value)
    ]
    return [*words, *(["--log", log] if log else [])]


def _show_best(kernels: Sequence[StoredKernel], known: Mapping[str, tuple[Standing, str]], *, as_json: bool) -> None:
    if as_json:
        print(json_of([{"task": k.task, **asdict(known[k.task][0]), "values": k.values} for k in kernels]))
        return
    from evo.report.terminal import best_table, show

    show(best_table((k.task, known[k.task][0], k.values) for k in kernels))


def _package(run: Run, folder: Path | None, task: str, form: str, *, hub: bool) -> None:
    from evo.packaging.package import from_run, write_package
    from evo.packaging.solution import write_solution

    subject = from_run(run, task, "--as" if form else "--package")
    if folder and not form:
        write_package(subject, folder, hub=hub)
    else:
        folder = folder or Path(f"{subject.operator.name}-{form}")
        traces = write_solution(subject, form, folder)
        if traces == 0 and (folder / "solution.json").exists():
            print("no traces.jsonl: the run timed none of the task's own workloads", file=sys.stderr)
    print(f"{subject.task}: {short(subject.kernel.id)} written to {folder}", file=sys.stderr)
    if subject.verdict and subject.verdict["level"] != "confirmed":
        print(f"it is not confirmed: {evo_command('resume', run.folder)} --confirm", file=sys.stderr)
