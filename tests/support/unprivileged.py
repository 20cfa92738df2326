"""Runs a module for which rights on files count, though root starts it.

``python unprivileged.py MODULE ...``: it stays the user it is, and its files its own.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2

if os.geteuid() == 0:
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
# What may not be had any more is given up by the program that is run next.
os.execv(sys.executable, [sys.executable, "-m", *sys.argv[1:]])
