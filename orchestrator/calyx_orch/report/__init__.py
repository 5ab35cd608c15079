"""What a person sees: the live table, the terminal's tables, and the one-file HTML report."""
