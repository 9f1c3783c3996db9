"""`python -m fitness.emulator OPERATOR FILE.cu [DTYPE...]`: is the kernel right on every hidden shape?"""

from __future__ import annotations

import sys
from pathlib import Path

from fitness.emulator.target import emulated
from fitness.evaluation import Rejection
from fitness.words import of_bound
from operators.catalog import load
from operators.errors import UserError
from operators.kernel import Kernel


def main() -> int:
    """0: right on all of them, with every dtype; 1: not, or not emulated."""
    if len(sys.argv) < 3:
        print(__doc__)
        return 2
    name, file, *dtypes = sys.argv[1:]
    try:
        operator = load(name)
        kernel = Kernel(operator.name, "cuda", Path(file).read_text(encoding="utf-8"))
        dtypes = dtypes or list(operator.dtypes.get("cuda", ()))
        results = {dtype: emulated(kernel, operator, dtype, shapes=len(operator.hidden)) for dtype in dtypes}
    except (UserError, OSError) as error:
        print(error)
        return 1
    for dtype, result in results.items():
        if isinstance(result, Rejection):
            print(f"{dtype}: {result.status}: {result.message}")
        else:
            worst = max((error.worst_ratio for error in result), default=0.0)
            print(f"{dtype}: right on {len(operator.hidden)} shapes, the worst error at {of_bound(worst)}")
    return int(any(isinstance(result, Rejection) for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
