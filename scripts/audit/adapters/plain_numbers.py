"""Random numbers for code that needs them as numbers, such as a kernel on a GPU.

Such code compares a random number with thresholds. The adapter names these thresholds. The
coins then decide between which two thresholds each number lies. The code runs at both ends of this interval (with several
numbers, at every combination of ends). If the results differ, the code has a threshold that the adapter did not name.
The adapter then raises ValueError, which the audit reports. Two things stay unnoticed: an unnamed threshold within EDGE
of a named one (code in float32 rounds there), and a result that changes inside an interval but is the same at both
ends.
"""

import itertools

EDGE = 1e-5
SAME = 1e-12  # thresholds that are closer together than this are one threshold


class Numbers:
    """Random numbers, each in an interval that the coins chose."""

    def __init__(self, coins, edge=EDGE):
        """`edge`: distance of the numbers from the thresholds. The default is for code in float32."""
        self.coins, self.edge, self.ends = coins, edge, []

    def draw(self, thresholds):
        """Adds a number that is uniform in [0, 1). It lies between two neighbours among 0, `thresholds` and 1."""
        number, low, high = self.coins.uniform(), 0.0, 1.0
        for threshold in sorted(map(float, thresholds)):
            if threshold - low < SAME or 1 - threshold < SAME:
                continue
            if number < threshold:
                high = threshold
                break
            low = threshold
        if high - low < 4 * self.edge:
            raise ValueError(
                f"thresholds {low} and {high} are closer together than {4 * self.edge}; use another --seed"
            )
        self.ends.append((low + self.edge, high - self.edge))

    def only_result(self, run):
        """run(list of points) returns one result for each point; a point has one number for each draw(). Returns the result
        that all points have."""
        points = list(itertools.product(*self.ends))
        results = run(points)
        for point, result in zip(points, results, strict=True):
            if result != results[0]:
                raise ValueError(
                    f"with the random numbers {points[0]} the result is {results[0]}, with {point} it is {result}: "
                    "it depends on a threshold that the adapter does not know"
                )
        return results[0]
