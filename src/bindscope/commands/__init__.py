"""What the command line and the Snakefile do besides jobs."""

DECIDES_NOTHING = True
