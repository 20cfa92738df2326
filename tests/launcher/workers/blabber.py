"""Tells its proxy in every spelling: in a line, over two writes, and within a line of 1 MB."""

import base64
import os
import time

SPELLINGS = (
    os.environ["PROXY_URL"],
    "scraper-eu",
    "p@ss/w0rd",
    "p%40ss%2Fw0rd",
    "p%40ss/w0rd",
    "p%2540ss%252Fw0rd",
    base64.b64encode(b"scraper-eu:p@ss/w0rd").decode(),
)


def out(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


for text in map(str.encode, SPELLINGS):
    out(b"ERROR: " + text + b"\n")
    out(b"ERROR: " + text[:5])
    time.sleep(0.05)  # so that the launcher reads the first part alone
    out(text[5:] + b"\n")
    out(b"ERROR: " + b"x" * 65_530 + text + b"y" * 1_000_000 + text + b"\n")
