"""`python -m calyx_orch.cli`."""

from calyx_orch.cli import main

main()
