"""The mutator that makes first kernels: files of the operator's own folder."""

from __future__ import annotations

from mutators.base import Parent, Proposal, Request
from operators.definition.spec import Operator
from operators.files import read_text
from operators.kernel import Kernel


class Ancestor:
    """`params["name"]` is the file's path without its ending, such as `naive` or `champions/h200`."""

    name = "ancestor"

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Never: it starts from no kernel."""
        return False

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        path = operator.ancestor(request.params["name"], request.task.target)
        file = path.relative_to(operator.folder)
        try:
            source = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            return Proposal(None, f"read {file}", f"{path} cannot be read: {error}")
        return Proposal(Kernel(operator.name, request.task.target, source), f"{file} as it stands")
