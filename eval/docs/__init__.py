"""The documentation site: pages of `docs/` and what is generated from the code, for MkDocs."""
