"""The times of the answers of a destination, or of several that count as one."""

from __future__ import annotations

from ....protocol.broker import peak_ewma

__all__ = ["AnswerTimes"]


class AnswerTimes:
    """A peak-sensitive moving average of the times of answers.

    Answers are added to it when it is read, several at once: that saves a few hundred nanoseconds
    for each request.

    Attributes:
        average: The average, in seconds; 0 if there has been no answer.
    """

    __slots__ = ("_added", "average")

    def __init__(self) -> None:
        self.average = 0.0
        self._added = 0.0

    def add(self, answers: int, seconds: float, slowest: float, now: float, decay: float) -> None:
        """Add answers.

        Args:
            answers: How many: at least one.
            seconds: The sum of their times.
            slowest: The longest of their times.
            now: The time, in seconds of a monotonic clock.
            decay: See `ChoiceOptions.latency_decay`.
        """
        # If no answer was slower than the average, their mean counts.
        slower = not self.average or slowest > self.average
        sample = slowest if slower else seconds / answers
        self.average = peak_ewma(self.average, sample, now - self._added, decay)
        self._added = now
