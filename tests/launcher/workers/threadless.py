"""Runs a command that gets no thread beside its first one, as under a limit on processes."""

import os
import resource
import sys

# A limit on processes would not bind root. So each thread wants a stack of 64 GB, and may not.
resource.setrlimit(resource.RLIMIT_STACK, (1 << 36, resource.RLIM_INFINITY))
resource.setrlimit(resource.RLIMIT_AS, (1 << 34, 1 << 34))
os.execv(sys.argv[1], sys.argv[1:])
