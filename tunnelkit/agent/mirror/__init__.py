"""The mirror's far end: batches staged, checked, published and read back."""
