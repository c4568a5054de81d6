"""The review desk, put together by hand: `greenroom run examples.desk.service:tree --store sqlite:////tmp/desk.db`.

It reviews the folder that the environment variable DESK_FOLDER names, else the current one, and ends when the report is
written. Stopped or killed before that, it goes on when it is run again with the same store. The actors are those of
`greenroom demo`; what is shown here is the tree they work in.
"""

from __future__ import annotations

import os

import greenroom as gr
from greenroom.demo.clerk import Clerk
from greenroom.demo.intake import Intake
from greenroom.demo.reader import IsolatedReader, Reader
from greenroom.demo.reporter import Outcome, Reporter
from greenroom.demo.reviewer import Reviewer
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
    # The review is a task of the reviewers: what its code has learned is in its journal, and in no actor. The reporter reads
    # that as it grows. The intake submits the task, and ends when it has; as a significant child it takes the desk with it.
    return gr.Supervisor(
        "desk",
        readers,
        gr.Child("clerk", Clerk, folder, pool, shutdown=0.2),
        gr.Child("reporter", Reporter, folder, None, show),
        gr.Agents("reviewers", Reviewer),
        gr.Child("intake", Intake, folder, restart="transient", significant=True, intensity=(3, 60.0)),
        auto_shutdown="any_significant",
        intensity=10,
        period=5.0,
    )


def show(outcome: Outcome) -> None:
    print(f"{len(outcome.records)} files seen; the report is in {', '.join(str(file) for file in outcome.files)}")


if __name__ == "__main__":
    raise SystemExit(gr.run(tree(), store="sqlite:////tmp/desk.db"))  # not among the files that are reviewed
