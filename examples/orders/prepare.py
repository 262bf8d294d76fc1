"""Create the tables: qbull's own, and the orders. May be run again."""

import psycopg
from tasks import app

import qbull

ORDERS = """\
CREATE TABLE IF NOT EXISTS orders (
    id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    product  text        NOT NULL,
    quantity integer     NOT NULL,
    price    numeric     NOT NULL,
    status   text        NOT NULL,
    taken_at timestamptz NOT NULL DEFAULT now()
)"""


def prepare() -> None:
    if app.database is None:
        raise SystemExit("set QBULL_DATABASE_URL=postgresql://USER:PASSWORD@HOST/NAME")
    qbull.postgres.migrate(app.database)
    with psycopg.connect(app.database) as connection:
        connection.execute(ORDERS)


if __name__ == "__main__":
    prepare()
    print("the tables are there")
