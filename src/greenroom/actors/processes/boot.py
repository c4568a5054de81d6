"""The file that a worker's interpreter runs: `python boot.py SOCKET LIFELINE PARENT NAME`.

It may import only what every Python has: where to find Greenroom it is told by its parent, which may have it from anywhere.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.path and sys.path[0] == __file__.rpartition("/")[0]:
        del sys.path[0]  # this folder, whose modules are nobody's but Greenroom's


def read(descriptor: int, count: int) -> bytes:
    """Exactly so many bytes. Raises `EOFError` when the parent has gone."""
    import os

    data = b""
    while len(data) < count:
        more = os.read(descriptor, count - len(data))
        if not more:
            raise EOFError("the parent has gone before it said what to do")
        data += more
    return data


def boot(control: int, lifeline: int, parent: int) -> None:
    """Import what the parent would import from the same places, and go to work."""
    import json

    try:
        order = read(control, int.from_bytes(read(control, 4), "big"))
    except EOFError:
        return  # whoever stopped it so early knows; a traceback on the terminal would only frighten
    told = json.loads(order.decode("utf-8", "surrogatepass"))
    sys.path[:] = told["path"]
    sys.argv[:] = told["argv"]
    from greenroom.actors.processes.worker import main

    main(control, lifeline, parent, told["main"])


if __name__ == "__main__":
    boot(*(int(argument) for argument in sys.argv[1:4]))
