"""The experiments, one per module and under its name: see `experiment.Experiment`."""
