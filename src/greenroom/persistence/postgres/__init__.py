"""The store on PostgreSQL, by asyncpg: an asyncio loop in the store thread, one connection, and set-based functions (R6)."""
