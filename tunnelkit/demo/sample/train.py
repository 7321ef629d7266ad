"""Fits y = 2x + 1 by gradient descent. Its loss grows instead of falling: a job for F5."""

import os

RATE = 0.1
EPOCHS = 40


def downhill(value: float, slope: float) -> float:
    """One step against the slope."""
    return value + RATE * slope


class Line:
    """The whole model: y = weight * x + bias."""

    def __init__(self) -> None:
        self.weight = 0.0
        self.bias = 0.0

    def predict(self, x: float) -> float:
        return self.weight * x + self.bias

    def loss(self, points: "list[tuple[float, float]]") -> float:
        """Mean of the squared errors."""
        return sum((self.predict(x) - y) ** 2 for x, y in points) / len(points)

    def learn(self, points: "list[tuple[float, float]]") -> None:
        """One epoch: both parameters a step downhill."""
        slope = offset = 0.0
        for x, y in points:
            error = self.predict(x) - y
            slope += 2 * error * x / len(points)
            offset += 2 * error / len(points)
        self.weight = downhill(self.weight, slope)
        self.bias = downhill(self.bias, offset)


def train(model: Line, points: "list[tuple[float, float]]") -> float:
    loss = model.loss(points)
    for epoch in range(EPOCHS):
        model.learn(points)
        loss = model.loss(points)
        print(f"epoch {epoch}: loss {loss:.3g}")
    return loss


if __name__ == "__main__":
    points = [(x / 4, 2 * x / 4 + 1) for x in range(-4, 5)]
    line = Line()
    print(f"training on GPU {os.environ.get('CUDA_VISIBLE_DEVICES', 'none')}")
    loss = train(line, points)
    print(f"y = {line.weight:.2f}x + {line.bias:.2f}, loss {loss:.3g}")
