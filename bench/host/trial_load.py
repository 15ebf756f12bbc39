# SPDX-License-Identifier: MIT OR Apache-2.0
"""Short connections, for trial.sh.

trial_load.py serve ADDRESS PORT                   takes what comes to its end, and answers a byte
trial_load.py send ADDRESS PORT SECONDS CLIENTS SIZE,SIZE...
                                                   sends, one connection after the other, and prints how many
"""

import random
import socket
import sys
import threading
import time

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


def send(address: tuple[str, int], sizes: list[int], end: float, seed: int, sent: list[int]) -> None:
    draw = random.Random(seed)
    while time.monotonic() < end:
        time.sleep(draw.expovariate(1 / PAUSE_S))
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(bytes(draw.choice(sizes)))
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        sent[0] += 1


def main() -> None:
    what, address, port, *more = sys.argv[1:]
    if what == "serve":
        serve(address, int(port))
        return
    seconds, clients = map(int, more[:2])
    sizes = [int(size) for size in more[2].split(",")]
    sent = [0]
    end = time.monotonic() + seconds
    to = (address, int(port))
    workers = [threading.Thread(target=send, args=(to, sizes, end, seed, sent)) for seed in range(clients)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(sent[0])


main()
