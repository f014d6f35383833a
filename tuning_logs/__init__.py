"""Tuning records: one JSONL file per target and model."""
