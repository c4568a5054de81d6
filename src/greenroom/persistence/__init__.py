"""The store: accepted means durable. Transitions and queries as values, group commit, and a driver for each database."""
