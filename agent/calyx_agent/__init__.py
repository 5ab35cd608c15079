"""The Python face of the agent: its wire protocol, its executables, and the engine in this process (the second door).

It knows nothing of calyx_orch.
"""
