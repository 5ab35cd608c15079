"""One module a verb: words of the command line become calls, and an exit code comes back."""
