"""The measuring process of a step's rows: outputs compared, then timed in a graph, weights cold.

python -m sublight.bench.ops.worker JOB.json LINES.jsonl
"""

import sys
from pathlib import Path

import msgspec

from sublight.bench.leave import leave_with_parent
from sublight.bench.ops.job import Failed, OpsJob, Said
from sublight.errors import SublightError


def main(job_file: str, lines_file: str) -> None:
    job = msgspec.json.decode(Path(job_file).read_bytes(), type=OpsJob)
    with Path(lines_file).open("ab", buffering=0) as lines:

        def say(said: Said) -> None:
            lines.write(msgspec.json.encode(said) + b"\n")

        try:
            from sublight.bench.ops.work import work

            work(job, say)
        except ImportError as error:
            say(Failed("timing the rows of a step", str(error), "pip install 'sublight[kernels]', which brings torch"))
        except SublightError as error:
            say(Failed(error.asked, error.found, error.hint))


if __name__ == "__main__":
    leave_with_parent()
    main(*sys.argv[1:])
