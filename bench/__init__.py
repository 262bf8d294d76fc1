"""The bench: qbull beside a hand-written loop on the same server, in one run. `make bench` prints one table.

Two contestants do the same work and are measured by the same code: `floor` (floor.py) is the loop that a good
engineer would write by hand without any feature, `qbull` (ours.py) is the library as its users run it. The machine
is part of every figure, so what counts are the ratios, and each ratio is taken within one round.

    __main__.py   options, the order of events, progress
    server.py     the server of the run, and what it says of its work
    contestant.py what both must be able to do; the jobs that they are given
    worker.py     a worker process and how it is told to go
    measure.py    one function for each figure
    features.py   the features, each with its goal and the row that it is compared with
    feature_rounds.py, feature_rates.py, feature_worker.py, postgres_rates.py
                  how the rows of the features are measured
    rest.py       enqueues by HTTP
    weight.py     processor time of imports and commands, memory of an idle worker
    quiet.py      whether others used the machine meanwhile
    rounds.py     figures of all rounds, ratios, bars
    table.py      what people see
    paired.py     another commit and this tree, side by side
    peers/        other queues on the same server, each in an environment of its own
    durable_peers/ other systems with durable steps, each with its own server
"""
