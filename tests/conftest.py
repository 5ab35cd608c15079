"""What all tests share: property tests have no deadline of their own, since machines are shared and clocks are not."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("shared-machine", deadline=None, max_examples=60)
settings.load_profile("shared-machine")
