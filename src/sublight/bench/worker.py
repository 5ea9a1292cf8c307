"""The program of the measuring process: reads a job, writes what it finds as lines.

    python -m sublight.bench.worker JOB.json LINES.jsonl

It is a process of its own because a kernel can hang, or take its process down; whoever started it is left to say which
one it was.
"""

import sys
from pathlib import Path

import msgspec

from sublight.bench.kernels.job import Failed, Job, Said
from sublight.bench.leave import leave_with_parent
from sublight.errors import SublightError


def main(job_file: str, lines_file: str) -> None:
    job = msgspec.json.decode(Path(job_file).read_bytes(), type=Job)
    with Path(lines_file).open("ab", buffering=0) as lines:

        def say(said: Said) -> None:
            lines.write(msgspec.json.encode(said) + b"\n")

        try:
            from sublight.bench.kernels.work import work

            work(job, say)
        except ImportError as error:
            say(Failed("measuring kernels", str(error), "pip install 'sublight[kernels]', which brings torch"))
        except SublightError as error:
            say(Failed(error.asked, error.found, error.hint))


if __name__ == "__main__":
    leave_with_parent()
    main(*sys.argv[1:])
