"""A release for people who may not use our deploy: one module for each format of ``launch render --format``."""

from launcher.render.exports.export import Export, export

__all__ = ["Export", "export"]
