"""What `benchmarks.greenroom_tasks` has done in a process of its own. (Not by that module itself: what it stores would be called `__main__`.)"""

from __future__ import annotations

import json
import sys

from benchmarks.greenroom_tasks import leave, sleep, wake
from benchmarks.loops import run_on

if __name__ == "__main__":
    what, url, backend, n = sys.argv[1:]
    if what == "leave":
        run_on(backend, leave, url, int(n))
    else:
        print(json.dumps(run_on(backend, {"sleep": sleep, "wake": wake}[what], url, int(n))))
