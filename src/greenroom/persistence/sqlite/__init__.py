"""The SQLite driver: statements, and deciding about rows in Python under the write lock."""
