#!/usr/bin/env python3
"""cdn-load.py: requests objects of a cache, the popular ones more often (Zipf), and checks each.

cdn-load.py URL OBJECTS KIB REQUESTS SEED

Four processes request REQUESTS objects in all; the same SEED gives the same requests. An object is
KIB KiB that repeat its name. Prints requests, hits (header X-Cache), hit ratio, MB/s, and the
median and 99th percentile of the time of a hit, separated by spaces. The status is 1 if an answer
is wrong.
"""

import http.client
import itertools
import multiprocessing
import random
import sys
import time
import urllib.parse

PROCESSES = 4


def content(number, kib):
    return (f"{number:015d}\n" * 64).encode() * kib


def client(url, weights, kib, requests, seed):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(url).netloc, timeout=30)
    numbers = random.Random(seed).choices(range(len(weights)), cum_weights=weights, k=requests)
    hits = []
    for number in numbers:
        began = time.perf_counter()
        connection.request("GET", f"/{number}")
        answer = connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - began
        if answer.status != 200 or body != content(number, kib):
            sys.exit(f"object {number}: status {answer.status}, {len(body)} bytes, not what the origin has")
        if answer.headers["X-Cache"] == "HIT":
            hits.append(took)
    return hits


def main():
    url, objects, kib, requests, seed = sys.argv[1], *map(int, sys.argv[2:])
    weights = list(itertools.accumulate(1 / rank for rank in range(1, objects + 1)))
    share = requests // PROCESSES
    jobs = [(url, weights, kib, share, seed * PROCESSES + job) for job in range(PROCESSES)]
    began = time.perf_counter()
    with multiprocessing.Pool(PROCESSES) as pool:
        hits = sorted(itertools.chain.from_iterable(pool.starmap(client, jobs, chunksize=1)))
    took = time.perf_counter() - began
    done = share * PROCESSES
    half, most = (hits[int(len(hits) * part)] * 1e6 if hits else 0 for part in (0.5, 0.99))
    print(f"{done} {len(hits)} {len(hits) / done:.3f} {done * kib * 1024 / took / 1e6:.0f} {half:.0f} {most:.0f}")


main()
