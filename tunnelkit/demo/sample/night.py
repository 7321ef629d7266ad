"""The demo's batch job: it keeps every batch, where one at a time would do."""

import time

BATCH_BYTES = 20 << 20
BATCHES = 20

kept = []
for number in range(BATCHES):
    kept.append(bytearray(BATCH_BYTES))
    print("batch", number, flush=True)
    time.sleep(0.1)
print("epoch 1", flush=True)
time.sleep(30)
