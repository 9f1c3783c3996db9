"""The queries that a comparison's report prints: what it shows is their answers, or is worked out from these.

They go to all runs of the comparison's folder, the judgement's store among them, whose rows have `run = 'store'`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent

from evo.compare.conclusions import POINTS
from evo.compare.inference import FACTORS, THRESHOLDS
from evo.compare.judgement import COMPARED, JUDGED, SHAPES, STORE
from evo.search.driver import FAULTY, WAITS
from evo.store.several import literal

CELL_OF = f"run <> '{STORE}'"
"""The condition that keeps the rows of cells among those of all runs."""
JUDGED_IN = f"run = '{STORE}'"

_PARTS = {
    # As `evo.compare.cells.standing` tells it, by the last event of its session.
    "ended": f"""
        select run, arg_max(kind, created_at) as kind,
            json_extract_string(arg_max(detail_json, created_at), '$.reason') as reason
        from events
        where {CELL_OF} and kind in ('session', 'finished', 'stopped', 'task_failed')
        group by run""",
    "cells": f"""
        select run, r.arm, r.seed, first_ask.task,
            case
                when e.kind is distinct from 'finished' then 'open' when starts_with(e.reason, '{WAITS}') then 'waiting'
                when e.reason = '{FAULTY}' then 'failed' else 'done'
            end as standing,
            coalesce(e.reason, '') as reason
        from runs r
        left join ended e using (run)
        left join (select run, any_value(task) as task from asks group by run) first_ask using (run)
        where {CELL_OF}""",
    "winners": f"""
        select run, task, kernel_id, level, flagged, log_speedup, coalesce(mutator = 'ancestor', false) as is_naive
        from best
        where {CELL_OF}""",
    "beside": f"""
        select task, kernel_id, coalesce(inherited, status) as verdict, message, log_ratio, log_ratio_se
        from evaluations
        where {JUDGED_IN} and evaluation_id = task || '/{COMPARED}/' || kernel_id""",
    # What turns out wrong beside the fastest winner is wrong.
    "judged": f"""
        select j.task, j.kernel_id, j.evaluation_id, j.log_speedup, j.log_speedup_se, b.log_ratio, b.log_ratio_se,
            if(b.verdict <> 'correct', b.verdict, coalesce(j.inherited, j.status)) as verdict,
            if(b.verdict <> 'correct', b.message, j.message) as message
        from evaluations j
        left join beside b using (task, kernel_id)
        where {JUDGED_IN} and j.evaluation_id = task || '/{JUDGED}/' || kernel_id""",
    "times": f"""
        select evaluation_id, list([anchor_latency_us, latency_us] order by workload) as times_us
        from timings
        where {JUDGED_IN}
        group by evaluation_id""",
    "outcomes": """
        select c.run, c.arm, split_part(c.task, '/', 1) as operator, c.task, c.seed,
            if(j.verdict = 'correct', j.log_speedup, 0) as log_speedup,
            if(j.verdict = 'correct', j.log_speedup_se, 0) as log_speedup_se,
            coalesce(j.verdict = 'correct', false) as correct,
            if(j.verdict = 'correct', coalesce(t.times_us, []), []) as times_us
        from cells c
        left join winners w using (run, task)
        left join judged j on j.task = c.task and j.kernel_id = w.kernel_id and not w.is_naive
        left join times t using (evaluation_id)
        where c.standing = 'done' and (w.kernel_id is null or w.is_naive or j.kernel_id is not null)""",
    "scores": """
        select *,
            case
                when not correct then 0
                when len(times_us) = 0 then exp(log_speedup)
                else list_sum([t[1] * t[1] / t[2] for t in times_us]) / list_sum([t[1] for t in times_us])
            end as score
        from outcomes""",
}
_NEEDS = {
    "cells": ("ended",), "judged": ("beside",), "outcomes": ("cells", "winners", "judged", "times"),
    "scores": ("outcomes",),
}  # fmt: skip


def using(names: Sequence[str], sql: str, more: Mapping[str, str] | None = None) -> str:
    """A query after those parts that it names, with what these are made from, and after `more` of its own."""
    wanted: dict[str, str] = {}

    def want(name: str) -> None:
        for needed in _NEEDS.get(name, ()):
            want(needed)
        wanted[name] = _PARTS[name]

    for name in names:
        want(name)
    parts = [f"{name} as ({indent(dedent(part), '    ')}\n)" for name, part in (wanted | dict(more or {})).items()]
    return "with\n" + ",\n".join(parts) + f"\n{dedent(sql).strip()}"


OUTCOMES = using(
    ["outcomes"],
    """
    select arm, operator, task, seed, log_speedup, log_speedup_se, correct, times_us
    from outcomes
    order by arm, task, seed
    """,
)
"""Fields of `evo.compare.inference.Outcome`."""


_TESTS = {
    "correct": "correct",
    **{f"above_{factor}": f"correct and exp(log_speedup) > {factor}" for factor in FACTORS},
    **{f"fast_{tau}": f"score >= {tau}" for tau in THRESHOLDS},
}
_MEANS = ", ".join(f"avg({name}) as {name}" for name in _TESTS)
_SHARES = ", ".join(f"avg(({test})::int) as {name}" for name, test in _TESTS.items())
ARMS = using(
    ["scores"],
    """
    select *
    from arms
    join (select arm, exp(median(log_speedup)) as median from tasks group by arm) using (arm)
    join (select arm, median(score) as score from scores group by arm) using (arm)
    order by speedup desc, arm
    """,
    {
        "tasks": f"""
            select arm, operator, task, count(*) as cells, avg(log_speedup) as log_speedup,
                {_SHARES}
            from scores
            group by arm, operator, task""",
        "operators": f"""
            select arm, operator, count(*) as tasks, sum(cells) as cells, avg(log_speedup) as log_speedup,
                {_MEANS}
            from tasks
            group by arm, operator""",
        "arms": f"""
            select arm, count(*) as operators, sum(tasks)::int as tasks, sum(cells)::int as cells,
                exp(avg(log_speedup)) as speedup, {_MEANS}
            from operators
            group by arm""",
    },
)
"""Each arm by itself: seeds are averaged first, then tasks of an operator, then operators."""


def beside(reference: str) -> str:
    """Each arm beside the reference: the primary endpoint."""
    sql = """
    select arm, count(*) as operators, sum(pairs)::int as pairs, exp(avg(log_ratio)) as ratio
    from operators
    group by arm
    order by ratio desc, arm
    """
    return using(["outcomes"], sql, _pairs(reference))


def by_operator(reference: str) -> str:
    """The same, operator by operator: what the test and the bootstrap resample."""
    sql = "select arm, operator, pairs, exp(log_ratio) as ratio from operators order by arm, operator"
    return using(["outcomes"], sql, _pairs(reference))


def _pairs(reference: str) -> Mapping[str, str]:
    name = literal(reference)
    return {
        "pairs": f"""
            select own.arm, own.operator, own.task, own.log_speedup - theirs.log_speedup as log_ratio
            from outcomes own
            join outcomes theirs on theirs.arm = {name} and theirs.task = own.task and theirs.seed = own.seed
            where own.arm <> {name}""",
        "tasks": """
            select arm, operator, task, count(*) as pairs, avg(log_ratio) as log_ratio from pairs group by all""",
        "operators": """
            select arm, operator, sum(pairs)::int as pairs, avg(log_ratio) as log_ratio from tasks group by all""",
    }


USED = f"""select arm, count(*) as cells, sum(evaluations)::bigint as evaluations, sum(trials)::bigint as trials,
    sum(duplicates)::bigint as duplicates, sum(rejected)::bigint as rejected, sum(repairs)::bigint as repairs,
    sum(checks)::bigint as checks, sum(calls)::bigint as calls, sum(failed_calls)::bigint as failed_calls,
    sum(tokens_in)::bigint as tokens_in, sum(tokens_out)::bigint as tokens_out, sum(cost_usd) as cost_usd,
    sum(lost_tokens)::bigint as lost_tokens, sum(lost_usd) as lost_usd, sum(evaluator_s) as evaluator_s
from used
where {CELL_OF}
group by arm
order by arm"""

CELLS = using(
    ["outcomes"],
    f"""
    select c.task, c.arm, c.seed, c.standing, c.reason, exp(w.log_speedup) as own_speedup, w.level, w.flagged,
        exp(o.log_speedup) as judged_speedup,
        if(o.correct, exp(o.log_speedup - 1.96 * o.log_speedup_se), null) as judged_low,
        if(o.correct, exp(o.log_speedup + 1.96 * o.log_speedup_se), null) as judged_high,
        o.correct, u.evaluations, u.trials, (u.tokens_in + u.tokens_out)::bigint as tokens, u.cost_usd, u.evaluator_s,
        if(w.is_naive, null, left(w.kernel_id, 12)) as kernel, c.run
    from cells c
    left join winners w using (run, task)
    left join outcomes o using (run)
    left join (from used where {CELL_OF}) u using (run)
    order by c.task, c.arm, c.seed
    """,
)

WINNERS = using(
    ["cells", "winners", "judged"],
    """
    select o.task, o.cells, left(o.kernel_id, 12) as kernel, coalesce(j.verdict, 'not judged') as verdict,
        if(j.verdict = 'correct', exp(j.log_speedup), null) as speedup,
        if(j.verdict = 'correct', exp(j.log_speedup - 1.96 * j.log_speedup_se), null) as speedup_low,
        if(j.verdict = 'correct', exp(j.log_speedup + 1.96 * j.log_speedup_se), null) as speedup_high,
        if(j.verdict = 'correct', exp(j.log_ratio), null) as over_fastest,
        if(j.verdict = 'correct', exp(j.log_ratio - 1.96 * j.log_ratio_se), null) as over_fastest_low,
        if(j.verdict = 'correct', exp(j.log_ratio + 1.96 * j.log_ratio_se), null) as over_fastest_high,
        m.latency_us, m.naive_us, l.library_us, l.over_library, left(j.message, 300) as message, o.kernel_id
    from own o
    left join judged j using (task, kernel_id)
    left join measured m on m.evaluation_id = j.evaluation_id and j.verdict = 'correct'
    left join library l on l.evaluation_id = j.evaluation_id and j.verdict = 'correct'
    order by o.task, speedup desc nulls last, o.kernel_id
    """,
    {
        "own": """
            select w.task, w.kernel_id, string_agg(c.arm || ' s' || c.seed, ', ' order by c.arm, c.seed) as cells
            from winners w
            join cells c using (run, task)
            where not w.is_naive and c.standing = 'done'
            group by all""",
        "measured": f"""
            select evaluation_id, exp(avg(ln(latency_us))) as latency_us, exp(avg(ln(anchor_latency_us))) as naive_us
            from timings
            where {JUDGED_IN}
            group by all""",
        "library": f"""
            select evaluation_id, exp(avg(ln(library_latency_us))) as library_us, exp(avg(log_ratio)) as over_library
            from library_timings
            where {JUDGED_IN}
            group by all""",
    },
)
"""Every distinct winner of a task, with geometric means over workloads."""

TIMES = f"""select e.task, left(e.kernel_id, 12) as kernel, t.workload, t.latency_us, t.anchor_latency_us as naive_us,
    l.library_latency_us as library_us, exp(t.log_ratio) as speedup,
    exp(t.log_ratio - 1.96 * t.log_ratio_se) as speedup_low,
    exp(t.log_ratio + 1.96 * t.log_ratio_se) as speedup_high, t.pairs
from timings t
join evaluations e on e.evaluation_id = t.evaluation_id and e.{JUDGED_IN}
    and e.evaluation_id = e.task || '/{JUDGED}/' || e.kernel_id
left join library_timings l on l.evaluation_id = t.evaluation_id and l.workload = t.workload and l.{JUDGED_IN}
where t.{JUDGED_IN}
order by e.task, e.kernel_id, t.workload"""

FAILURES = f"""select arm, status, sum(count)::bigint as count, max(left(example, 300)) as example
from failures
where {CELL_OF}
group by arm, status
order by arm, count desc, status"""

MODELS = f"""select arm, model, coalesce(author, '') as author, count(*) as calls,
    count(*) filter (status in ('failed', 'unavailable')) as failed, sum(coalesce(tokens_in, 0))::bigint as tokens_in,
    sum(coalesce(tokens_out, 0))::bigint as tokens_out, sum(coalesce(cost_usd, 0)) as cost_usd
from llm_calls
where {CELL_OF}
group by all
order by arm, model, author"""

HOSTS = f"""select engine_version, host_json, count(*) as cells, min(created_at) as first_began,
    max(created_at) as last_began
from runs
where {CELL_OF}
group by all
order by first_began"""

SHAPES_DRAWN = f"""select task, json_extract(detail_json, '$.drawn')::int as drawn
from events
where {JUDGED_IN} and kind = '{SHAPES}'
order by task"""


def source(kernel_id: str) -> str:
    """The file of one winner, tunables besides."""
    return f"select source, values_json from kernels where {JUDGED_IN} and kernel_id = {literal(kernel_id)}"


SOURCES = f"select kernel_id, source, values_json from kernels where {JUDGED_IN}"


def curve(budget: str) -> str:
    """Mean best so far of every arm against one kind of budget, as `evo.compare.conclusions` works it out."""
    last = POINTS - 1
    return f"""with
points as (  -- steps: the best so far of a cell by what it had used
    select run, arm, seed, task, {budget}::double as used, max(best_log_speedup) as best
    from curve
    where {CELL_OF} and best_log_speedup is not null
    group by all
),
grid as (
    select i, if(i = {last}, most, i * (most / {last})) as used
    from range({POINTS}) steps(i), (select max(used) as most from points)
),
wanted as (
    select * from (select distinct run, arm, seed, task from points), grid
),
cells as (
    select w.arm, w.seed, w.task, w.i, w.used, coalesce(p.best, 0) as best
    from wanted w
    asof left join points p on p.run = w.run and p.used <= w.used
),
tasks as (select arm, task, i, used, avg(best) as best from cells group by all),
operators as (
    select arm, split_part(task, '/', 1) as operator, i, used, avg(best) as best from tasks group by all
)
select arm, i, used, exp(avg(best)) as speedup, avg(best) as log_speedup
from operators
group by all
order by arm, i"""
