"""The review desk, put together by hand: `greenroom run examples.desk.service:tree`.

It reviews the folder that the environment variable DESK_FOLDER names, else the current one, and ends when the report is
written. The actors are those of `greenroom demo`; what is shown here is the tree they work in.
"""

from __future__ import annotations

import os

import greenroom as gr
from greenroom.demo.index import Index
from greenroom.demo.intake import Intake
from greenroom.demo.reader import IsolatedReader, Reader
from greenroom.demo.reporter import Outcome, Reporter
from greenroom.demo.text import encode_path


def tree() -> gr.Supervisor:
    folder = os.path.realpath(os.environ.get("DESK_FOLDER", "."))
    where = encode_path(folder)
    mailbox = gr.Mailbox(capacity=64)  # whoever sends a reader more waits for room

    # Each reader is on its own: a file may crash it, and it comes back after a moment. The isolated one has a process, so
    # a file that hangs it or eats its memory can be got rid of.
    readers = gr.Supervisor(
        "readers",
        gr.Parallel(
            *(gr.Child(f"reader-{n}", Reader, where, mailbox=mailbox) for n in range(1, 5)),
            gr.Child(
                "isolated",
                IsolatedReader,
                where,
                20.0,  # seconds for one file
                isolation="process",
                mailbox=mailbox,
                memory_limit=2 * 1024**3,
                start_timeout=30.0,
                shutdown="kill",  # it keeps nothing
            ),
        ),
        intensity=500,
        period=5.0,
        backoff=gr.Backoff(0.05, maximum=1.0),
    )
    # Each builds on those before it: when the index crashes, the intake starts anew and brings what the index has lost.
    # The reporter ends when it has written the report, and as a significant child it takes the desk with it.
    return gr.Supervisor(
        "desk",
        readers,
        gr.Child("index", Index),
        gr.Child("reporter", Reporter, folder, None, show, restart="transient", significant=True),
        gr.Child("intake", Intake, folder),
        strategy="rest_for_one",
        auto_shutdown="any_significant",
        intensity=10,
        period=5.0,
    )


def show(outcome: Outcome) -> None:
    print(f"{len(outcome.records)} files seen; the report is in {', '.join(str(file) for file in outcome.files)}")


if __name__ == "__main__":
    raise SystemExit(gr.run(tree()))
