"""JSON Schemas of our YAML files, so that editors complete and check them.

Made from the schema's classes, their comments and the catalogues each time they are asked for: nothing is kept twice.
The form is draft 7, which the YAML language server reads in full.
"""

from launcher.editor.files import KINDS, schema_of

__all__ = ["KINDS", "schema_of"]
