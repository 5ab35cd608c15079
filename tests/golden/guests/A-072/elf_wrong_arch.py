#!/usr/bin/env python3
"""elf_wrong_arch.py IN OUT: copies an ELF file and sets e_machine to 183 (aarch64)."""

import sys
from pathlib import Path

elf = bytearray(Path(sys.argv[1]).read_bytes())
assert elf[:4] == b"\x7fELF"
elf[18:20] = (183).to_bytes(2, "little")
Path(sys.argv[2]).write_bytes(elf)
