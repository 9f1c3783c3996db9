"""Growth, with a text, of the time that readers of strangers' texts take: the worst growth of each, and its slowest
text.

    python -m tests.bench.growth [--characters 262144] [READER ...]

The readers and texts are those of `tests/test_growth.py`. Prints a line of JSON for each reader: `texts`, `growth` (how
many times longer for a text that is 16 times as long), `slowest_s` of the processor's time, and the texts they are of.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import product

from tests.readers import PIECES, READERS, SPLIT, TIMES


def main(arguments: list[str]) -> int:
    """Measure the chosen readers."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__.partition("\n")[0])
    parser.add_argument("readers", nargs="*", help="by default all")
    parser.add_argument("--characters", type=int, default=1 << 18)
    chosen = parser.parse_args(arguments)
    for name in chosen.readers or READERS:
        reader = READERS[name]
        texts = list(product(reader.frames, (*reader.pieces, *PIECES)))
        growths = {text: reader.growth(*text, chosen.characters) for text in texts}
        spent = {
            (frame, piece): reader.spent_s(frame.replace(SPLIT, piece * (chosen.characters // len(piece))))
            for frame, piece in texts
        }
        worst, slowest = (max(found, key=found.__getitem__) for found in (growths, spent))
        told = {"reader": name, "texts": len(texts), "times": TIMES, "growth": round(growths[worst], 1), "of": worst}
        print(json.dumps(told | {"slowest_s": round(spent[slowest], 3), "slowest": slowest}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
