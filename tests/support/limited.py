"""Runs a module of which no file may grow too large: ``python limited.py BYTES MODULE ...``."""

from __future__ import annotations

import resource
import runpy
import sys

limit, module = sys.argv[1:3]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
sys.argv = sys.argv[2:]
runpy.run_module(module, run_name="__main__", alter_sys=True)
