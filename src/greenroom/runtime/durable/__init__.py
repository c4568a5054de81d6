"""Durable actors and persistent mailboxes: a running tree's actors over the store."""
