"""The review desk, put together by hand: `greenroom run examples.desk.service:tree --store sqlite:////tmp/desk.db`.

It reviews the folder that the environment variable DESK_FOLDER names, else the current one, and ends when the report is
written. Stopped or killed before that, it goes on when it is run again with the same store. The actors are those of
`greenroom demo`; what is shown here is the tree they work in.
"""

from __future__ import annotations

import os

import greenroom as gr
from greenroom.demo.clerk import Clerk
from greenroom.demo.index import Shelf
from greenroom.demo.intake import Intake
from greenroom.demo.reader import IsolatedReader, Reader
from greenroom.demo.reporter import Outcome, Reporter
from greenroom.demo.text import encode_path


def tree() -> gr.Supervisor:
    folder = os.path.realpath(os.environ.get("DESK_FOLDER", "."))
    where = encode_path(folder)
    mailbox = gr.Mailbox(capacity=64)  # whoever sends a reader more waits for room
    pool = ("reader-1", "reader-2", "reader-3", "reader-4")

    # Each reader is on its own: a file may crash it, and it comes back after a moment. The isolated one has a process, so
    # a file that hangs it or eats its memory can be got rid of.
    readers = gr.Supervisor(
        "readers",
        gr.Parallel(
            *(gr.Child(name, Reader, where, mailbox=mailbox) for name in pool),
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
    # What is asked for and what is still to be read waits in persistent mailboxes; a crash brings it back as often as it
    # comes. What is known is in the index, a pool of durable actors.
    work = gr.PersistentMailbox(max_deliveries=1_000)
    # The intake ends when the report is written, and as a significant child it takes the desk with it.
    return gr.Supervisor(
        "desk",
        readers,
        gr.DurableActors("index", Shelf, max_resident=20, idle=5.0, max_deliveries=25),
        gr.Child("reporter", Reporter, folder, None, None, show),
        gr.Child("clerk", Clerk, folder, pool, mailbox=work, shutdown=0.2),
        gr.Child("clerk-large", Clerk, folder, ("isolated",), mailbox=work, shutdown=0.2),
        gr.Child("intake", Intake, folder, mailbox=work, shutdown=0.2, restart="transient", significant=True),
        auto_shutdown="any_significant",
        intensity=10,
        period=5.0,
    )


def show(outcome: Outcome) -> None:
    print(f"{len(outcome.records)} files seen; the report is in {', '.join(str(file) for file in outcome.files)}")


if __name__ == "__main__":
    raise SystemExit(gr.run(tree(), store="sqlite:////tmp/desk.db"))  # not among the files that are reviewed
