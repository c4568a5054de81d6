"""How transitions are applied, the same on every database: what each decides, and the SQL by which it does it.

A noun has a module. Its functions take a `Unit`, which is a batch in one transaction, and a transition, and give the answer;
they await nothing but the statements of the transaction (R6). SQL is written with `$n`, and a clause that locks rows stands at
the end of a statement, where a database that needs none can drop it (R33). Drivers may have quicker ways for what is most
common; what those leave over comes here.
"""
