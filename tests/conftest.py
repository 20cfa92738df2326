from __future__ import annotations

import signal

# A run under nohup, or in the background of a script, ignores these, and so would every process it
# starts: the tests of stopping would wait for something that cannot happen.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(
            _number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL
        )
