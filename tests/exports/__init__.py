"""Exported releases and containers in their real tools."""
