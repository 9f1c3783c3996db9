"""The mutators whose kernels are given: ancestors, kernels of another dtype, and guests."""

from __future__ import annotations

from mutators.base import Parent, Proposal, Request
from operators.definition.spec import Operator
from operators.files import read_text
from operators.kernel import Kernel


class AncestorFile:
    """`params["name"]` is the file's path without its ending, such as `naive` or `champions/h200`."""

    name = "ancestor"
    is_quick = True

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


class Carry:
    """The last parent itself, which is a kernel of the request's `source_task`."""

    name = "carry"
    is_quick = True

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Return True for every kernel of the operator, whatever its dtype."""
        return kernel.operator == operator.name

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """Return the kernel, its tunables included."""
        if not parents or not self.applies(parents[-1].kernel, operator):
            return Proposal(None, self.name, "carry needs a kernel of the same operator")
        return Proposal(parents[-1].kernel, f"the kernel of {request.source_task} as it stands")


class Guest:
    """Params: `source`, the kernel file; `values` of its tunables, `author`, and `note`, what is new in it."""

    name = "guest"
    is_quick = True

    def applies(self, kernel: Kernel, operator: Operator) -> bool:
        """Never: no strategy asks for it."""
        return False

    def propose(self, request: Request, parents: tuple[Parent, ...], operator: Operator) -> Proposal:
        """Return the guest itself."""
        params = request.params
        kernel = Kernel(operator.name, request.task.target, params["source"], params["values"])
        return Proposal(kernel, params["note"] or f"a guest of {params['author']}")
