"""Runs by themselves: which times are due (pure), the daemon that fires them, and what comes after each night."""
