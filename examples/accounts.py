"""Accounts that lose nothing to `kill -9`: durable actors, one for each key.

    python examples/accounts.py

A service keeps accounts in a pool of durable actors, and runs as a process of its own. A client sends it transfers by way
of the store. Half way the service is killed, the client goes on, the service is started again; and since the client does
not know what had arrived, it sends everything once more.

What there is to see:

* **A transfer is one transaction.** The new state of an account, the mark that the message was handled, and the deposit that
  it sends to the other account are committed together. No moment at which it is killed can lose money or make some.
* **An account is there when it is needed.** It comes to life when it has mail, in a pool; nobody has made alice or bob.
* **A client needs no service.** What it sends by way of the store is accepted, durably, and waits for one.
* **An id makes it safe to send again.** The same transfer under the same `message_id` is a duplicate, and is made once.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path

import anyio
from attrs import evolve, frozen

import greenroom as gr


@frozen
class Deposit(gr.Message[None]):
    cents: int


@frozen
class Transfer(gr.Message[None]):
    to: str
    cents: int


@frozen
class Balance:
    cents: int = 0
    moves: int = 0


@frozen
class Show(gr.Message[Balance]):
    pass


class Account(gr.DurableActor[Balance]):
    @gr.handles
    async def deposit(self, message: Deposit) -> None:
        self.move(message.cents)

    @gr.handles
    async def transfer(self, message: Transfer) -> None:
        if self.state.cents < message.cents:
            raise gr.Rejected(f"{self.context.key} has only {self.state.cents}")
        self.move(-message.cents)
        await self.context.runtime.ref(f"bank/accounts/{message.to}").send(Deposit(message.cents))

    @gr.handles
    async def show(self, message: Show) -> Balance:
        return self.state

    def move(self, cents: int) -> None:
        self.state = evolve(self.state, cents=self.state.cents + cents, moves=self.state.moves + 1)


TREE = gr.Supervisor("bank", gr.DurableActors("accounts", Account))

ALICE, BOB = "bank/accounts/alice", "bank/accounts/bob"


def start_service(url: str) -> subprocess.Popen[bytes]:
    """`greenroom run accounts:TREE --store URL`, as a process of its own."""
    command = [sys.executable, "-m", "greenroom.cli", "run", f"{__name__}:TREE", "--store", url]
    folder = Path(__file__).resolve().parents[__name__.count(".")]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)


async def transfer(client: gr.Client, numbers: range) -> list[str]:
    """Send the transfers of these numbers from alice to bob; what became of each."""
    sent = [await client.send(ALICE, Transfer("bob", 1), message_id=f"transfer {n}") for n in numbers]
    return [receipt.disposition for receipt in sent]


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/bank.db"
        async with gr.Runtime(TREE, store=url) as runtime:  # the first run makes the store
            await runtime.ref(ALICE).ask(Deposit(1000))
        service = start_service(url)
        try:
            async with gr.Client(url) as client:
                await transfer(client, range(40))
                await client.ask(ALICE, Show(), timeout=None)  # it is at work
                await transfer(client, range(40, 80))
                service.kill()  # kill -9, with some transfers handled, one in hand, the others waiting
                service.wait()
                await transfer(client, range(80, 100))  # nobody is there, and nothing is lost
                service = start_service(url)
                again = await transfer(client, range(100))
                alice = await client.ask(ALICE, Show(), timeout=None)
                bob = await client.ask(BOB, Show(), timeout=None)
        finally:
            service.terminate()
            service.wait()
    print(f"100 transfers, all sent again: {again.count('duplicate')} duplicates")
    print(f"alice has {alice.cents} after {alice.moves} moves, bob has {bob.cents} after {bob.moves}")


if __name__ == "__main__":
    # by its own name, under which the service knows the messages, too
    anyio.run(import_module("accounts").main)
