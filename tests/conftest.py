"""What all tests share: nothing of the terminal or shell they are started from, a store of their own, and time for property tests.

Property tests have no deadline of their own, since machines are shared and clocks are not.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None, max_examples=60)
settings.load_profile("shared-machine")

os.environ["TERM"] = "xterm-256color"
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)

# Programs obey what they were started to ignore, and tests send these: under nohup, or put behind by a shell, they would do nothing.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)

_STORE = tempfile.mkdtemp(prefix="calyx-store-")
atexit.register(shutil.rmtree, _STORE, ignore_errors=True)
os.environ["CALYX_ORCH_STORE"] = f"sqlite:///{_STORE}/store.sqlite"
