"""Leaves a daemon in a session of its own, which keeps the output and a zombie of this group."""

import os
import time

ready, tell = os.pipe()
if os.fork():
    os.read(ready, 1)
    os._exit(0)
if not os.fork():
    os._exit(0)  # the zombie
os.setsid()
os.write(1, b"daemon %d\n" % os.getpid())
os.write(tell, b".")
time.sleep(60)
