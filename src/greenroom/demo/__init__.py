"""The review desk: a supervised service that reads a folder and reports on what it finds there."""
