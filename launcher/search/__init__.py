"""Search among the points of a sweep: not all are measured, the next one is chosen by what the others gave."""
