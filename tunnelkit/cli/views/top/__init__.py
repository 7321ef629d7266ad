"""`tk top`: tables as text, and the live screen."""
