"""The command line: `greenroom run` for a tree of yours, `greenroom demo` for the review desk."""
