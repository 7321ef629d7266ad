"""`tk top`: the probe's streams from a job's nodes, joined into frames."""
