"""The lints of the house: counts of the source, each with a goal and, until it is reached, a ceiling.

    make house                     the table, and the violations of every count above its ceiling
    make house ARGS=clashes        all violations of one count (or several; "all" for every one)
    make house ARGS=--lower        write today's lower counts into ceilings.toml

A count may fall and never rise. `ceilings.toml` lists the counts that have not reached their goals yet; the
others are held to their goals. Exceptions are entries of `tables.py`, each with its reason.
"""
