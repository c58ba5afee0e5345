"""Every fault on both set-ups, each several times at random moments under load, and what it leaves behind.

The set-ups: `embedded` is `make run` alone; `full` has PostgreSQL, Redis, a web server and workers as programs of their
own. Under way are uploads, replacements, deletions, searches and answers, whose model is a stub on the loopback. After
each fault every acknowledged document must be there once with exactly the chunks and vectors of its text, no job may be
left under way or have failed, every answered run must be stored, and `ragd check consistency` and `ragd audit
verify` must pass.

Run: python -m benchmarks.bench_faults [--only FAULT ...] [--setup embedded|full] [--times N] [--seed N] [--clients N]
"""

from __future__ import annotations

import argparse
import signal
import sys
import time

from tests.faults.fault_matrix import matrix
from tests.faults.fault_matrix.faults import FAULTS


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(FAULTS), default=list(FAULTS), metavar="FAULT")
    parser.add_argument("--setup", choices=list(matrix.SETUPS), help="one of the two; both when left out")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--clients", type=int, default=1, help="that search at once")
    parser.add_argument("--broker", choices=("redis", "rabbitmq", "pgmq"), default="redis", help="of the full set-up")
    parser.add_argument("--earlier", default="", help="commit of the earlier version; else the first with this schema")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is stopped
    began, results = time.monotonic(), []
    print(f"seed {chosen.seed}, {chosen.times} times each; of times: median / longest, after the end of the fault")
    print(matrix.HEAD, flush=True)
    for setup in [chosen.setup] if chosen.setup else list(matrix.SETUPS):
        possible = []
        for fault in (FAULTS[name] for name in FAULTS if name in chosen.only):
            if why := "the set-up has none" if setup not in fault.setups else fault.missing():
                print(f"{fault.name:<17}{setup:<10}     - {why}", flush=True)
            else:
                possible.append(fault)
        options = {"broker": chosen.broker, "earlier": chosen.earlier}
        for result in matrix.run(possible, setup, chosen.times, chosen.seed, chosen.clients, **options):
            results.append(result)
            print(matrix.row(result), flush=True)
            print(f"    {matrix.statuses(result)}", flush=True)
            for words in result.words[:12]:
                print(f"    {words}", flush=True)
    total = {name: sum(getattr(result, name) for result in results) for name in ("lost", "doubled", "hanging")}
    failed = sum(result.checks + result.other for result in results)
    strikes = sum(result.times for result in results)
    print(f"{strikes} faults in {(time.monotonic() - began) / 60:.0f} min")
    print(
        f"lost {total['lost']}, doubled {total['doubled']}, hanging {total['hanging']}, failed checks {failed}"
        "   (target: 0 each)"
    )
    sys.exit(any(not result.is_good for result in results))


if __name__ == "__main__":
    main()
