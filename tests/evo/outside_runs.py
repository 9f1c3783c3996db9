"""Searches whose model is outside, and a client that answers what it asks; scripted fitness, as in `model_runs`.

As a program, `python -m tests.evo.outside_runs FOLDER EVALUATIONS`, it is a session that waits for answers and can be
killed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from evo.config import RunConfig
from evo.inbox import Inbox
from evo.outside.questions import CheckedLines, InboxCheck, OpenQuestion, open_questions
from tests.evo import model_runs

MODEL = "outside/ann"
USAGE = {"prompt_tokens": 1000, "completion_tokens": 10}


def config(**changes: Any) -> RunConfig:
    llm = {"models": [MODEL], "concurrency": 3} | changes.pop("llm", {})
    return model_runs.config("", **({"llm": llm} | changes))


def session(folder: Path, made: RunConfig, **options: Any) -> str:
    """One session of a run, from its beginning or where it ended; why it ended."""
    return asyncio.run(model_runs.session(folder, made, **options))


def answer(question: OpenQuestion) -> str:
    """A line in the form of OpenAI's batches: what a scripted model says to the same messages."""
    said = model_runs.script({"messages": list(question.messages)}, 0)
    choice = {"index": 0, "message": {"role": "assistant", "content": said.text}, "finish_reason": said.finish}
    body = {"id": "chatcmpl-1", "model": "ann-1", "choices": [choice], "usage": USAGE}
    return json.dumps({"id": "b", "custom_id": question.cache_key, "error": None} | {
        "response": {"status_code": 200, "request_id": "r", "body": body}
    })  # fmt: skip


def tell(folder: Path, *lines: str) -> CheckedLines:
    """Tell a run these lines as `evo tell` does."""
    found = InboxCheck(folder, "ann").look_at((f"line {number}", line) for number, line in enumerate(lines, 1))
    if found.lines:
        Inbox(folder).put(found.lines)
    return found


def answer_all(folder: Path) -> int:
    """Answer every open question; how many there were."""
    return tell(folder, *map(answer, open_questions(folder))).answers


if __name__ == "__main__":
    made = config(budget={"evaluations": int(sys.argv[2])})
    print(session(Path(sys.argv[1]), made, wait_s=600))
