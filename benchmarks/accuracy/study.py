"""Which of the methods is best, by the same budget for all of them?

    python -m benchmarks.accuracy.study --device cuda --minutes 9 --jobs 3

The same as ``python -m benchmarks.accuracy study``, with its options.
"""

import sys

from benchmarks.accuracy.__main__ import main

if __name__ == "__main__":
    main(["study", *sys.argv[1:]])
