"""The batch sweep of every model of the catalogue, in one process: how long reading and how long arithmetic takes.

python benchmarks/batch_sweep.py
"""

import time

from sublight.errors import UsageError
from sublight.facts.catalogue.models import model_names
from sublight.facts.gpu import get_gpu
from sublight.facts.interconnect import interconnect_for
from sublight.facts.model import read_model
from sublight.facts.workload import Layout, Workload
from sublight.limits.sweep import BATCHES, sweep


def main() -> None:
    gpu = get_gpu("b200")
    link = interconnect_for(gpu)
    start = time.perf_counter()
    models = [read_model(name) for name in model_names()]
    read_s = time.perf_counter() - start
    start = time.perf_counter()
    for model in models:
        for tp in (8, 4, 2, 1):
            try:
                sweep(model, gpu, Workload(layout=Layout(tp=tp)), link)
            except UsageError:
                continue  # fewer ranks suit its heads
            break
    sweep_s = time.perf_counter() - start
    print(f"{len(models)} models x {len(BATCHES)} batch sizes")
    print(f"reading    {read_s * 1e3:8.1f} ms")
    print(f"arithmetic {sweep_s * 1e3:8.1f} ms, {sweep_s / len(models) / len(BATCHES) * 1e6:.0f} us a limit")
    print(f"together   {(read_s + sweep_s) * 1e3:8.1f} ms")


if __name__ == "__main__":
    main()
