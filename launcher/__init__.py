"""Declarative configuration and launch tool for LLM servers."""

__version__ = "0.1.0"
