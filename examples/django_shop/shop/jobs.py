"""The app of this project: where its jobs are, and which queues it declares itself."""

import qbull
from qbull.contrib.django import DjangoConnections

app = qbull.App(middleware=[DjangoConnections()])
stock = app.queue("stock", order="key", retry=qbull.Retry(delays=(1, 5, 15)))
