"""The measuring process of a step's rows: python -m sublight.bench.ops.worker JOB.json LINES.jsonl"""

import sys

from sublight.bench.answering import Say, answer_watcher, torch_for
from sublight.bench.ops.job import OpsJob


def _work(job: OpsJob, say: Say) -> None:
    with torch_for("timing the rows of a step"):
        from sublight.bench.ops.work import work

        work(job, say)


def main(job_file: str, lines_file: str) -> None:
    answer_watcher(OpsJob, _work, job_file, lines_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
