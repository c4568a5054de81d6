"""How queries are answered, the same on every database: their SQL, and the records that its rows become.

Each is one statement, or one for each page, in autocommit mode: no read transaction outlives its call (R34). Lists are cut
inside, before anything is joined to them, so that a page costs a page whatever plan is chosen.
"""
