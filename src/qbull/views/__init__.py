"""Wire: the shapes of what the API takes and gives. What is written here is what the OpenAPI document says.

A job, counts and the rest are made in qbull/wire.py, which the command line prints too; `shaped` holds them to these shapes.
"""
