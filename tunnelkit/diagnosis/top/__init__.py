"""`tk top`: what a job's nodes, ranks and GPUs do now, and which one differs most."""
