"""`tk why`: gathers evidence about a job, side by side and with limits, and has it judged."""
