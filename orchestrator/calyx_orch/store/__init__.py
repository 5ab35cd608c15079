"""Where runs are kept: the run folder is the truth."""
