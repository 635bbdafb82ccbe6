"""Waiting for a condition, with a deadline, instead of sleeping and hoping."""

import os
import time

# Slow machines multiply every deadline; no test asserts a time of its own beside the contract's.
PATIENCE = float(os.environ.get("PGMQTT_TEST_PATIENCE", "1"))


def wait_for(condition, what, deadline=20.0, every=0.02):
    """Calls condition until it returns something true and returns that; raises after deadline.

    An exception out of condition counts as not yet, and is shown if it never comes true.
    """
    end = time.monotonic() + deadline * PATIENCE
    last = None
    while True:
        try:
            value = condition()
            if value:
                return value
            last = f"last value: {value!r}"
        except Exception as error:  # the condition may not even be askable yet
            last = f"last error: {type(error).__name__}: {error}"
        if time.monotonic() >= end:
            raise TimeoutError(f"{what}: not within {deadline * PATIENCE:g} s ({last})")
        time.sleep(every)
