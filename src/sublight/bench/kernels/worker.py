"""The measuring process of kernels: python -m sublight.bench.kernels.worker JOB.json LINES.jsonl"""

import sys

from sublight.bench.answering import Say, answer_watcher, torch_for
from sublight.bench.kernels.job import Job


def _work(job: Job, say: Say) -> None:
    with torch_for("measuring kernels"):
        from sublight.bench.kernels.work import work

        work(job, say)


def main(job_file: str, lines_file: str) -> None:
    answer_watcher(Job, _work, job_file, lines_file)


if __name__ == "__main__":
    main(*sys.argv[1:])
