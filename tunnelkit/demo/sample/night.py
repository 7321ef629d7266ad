"""The demo's batch job: one of its rows lacks what the code wants."""

ROWS = [{"image": 1, "label": 0}, {"image": 2}]


def collate(row: dict[str, int]) -> int:
    """Return a row's label."""
    return row["label"]


print("labels", [collate(row) for row in ROWS])
