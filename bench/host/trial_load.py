# SPDX-License-Identifier: MIT OR Apache-2.0
"""Short connections of three sizes, for trial.sh.

trial_load.py serve ADDRESS PORT                   takes what comes to its end, and answers a byte
trial_load.py send ADDRESS PORT SECONDS CLIENTS    sends, one connection after the other, and prints how many
"""

import random
import socket
import sys
import threading
import time

SIZES = (4_000, 40_000, 200_000)
# Between two connections of a client, in the mean.
PAUSE_S = 0.02


def take(connection: socket.socket) -> None:
    with connection:
        try:
            while connection.recv(1 << 18):
                pass
            connection.sendall(b".")
        except OSError:
            pass


def serve(address: str, port: int) -> None:
    listener = socket.create_server((address, port), backlog=1024)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=take, args=(connection,), daemon=True).start()


def send(address: str, port: int, end: float, seed: int, sent: list[int]) -> None:
    draw = random.Random(seed)
    while time.monotonic() < end:
        time.sleep(draw.expovariate(1 / PAUSE_S))
        with socket.create_connection((address, port), timeout=30) as connection:
            connection.sendall(bytes(draw.choice(SIZES)))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        sent[0] += 1


def main() -> None:
    what, address, port, *more = sys.argv[1:]
    if what == "serve":
        serve(address, int(port))
        return
    seconds, clients = map(int, more)
    sent = [0]
    end = time.monotonic() + seconds
    workers = [threading.Thread(target=send, args=(address, int(port), end, seed, sent)) for seed in range(clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(sent[0])


main()
