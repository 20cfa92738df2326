"""Runs a command with SIGINT, SIGTERM and SIGCHLD blocked."""

import os
import signal
import sys

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD])
os.execv(sys.argv[1], sys.argv[1:])
