"""Numbered migrations, and what they make of a database."""
