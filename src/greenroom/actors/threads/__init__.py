"""Thread children: blocking actors, ours and Pykka's, each on a daemon thread of its own; the mailbox stays on the event loop's side."""
