"""Measuring programs, one adapter each: what a point is measured with, and how its figures are read."""
