"""How jobs are tested in Django: inline in the transaction of a TestCase, or on a real server."""

from typing import Any
from unittest import mock

from django.test import TestCase, TransactionTestCase

import qbull
from qbull import testing
from qbull.contrib.django import on_commit
from shop.jobs import app, stock
from shop.models import Order
from shop.tasks import count, reserve, send_receipt


class Inline(TestCase):
    """Without a server; tasks run in the thread and the transaction of the test."""

    def setUp(self) -> None:
        self.jobs = self.enterContext(testing.inline(app))

    def order(self, **form: str) -> Any:
        with self.captureOnCommitCallbacks(execute=True):
            return self.client.post("/orders", {"email": "ada@example.org", **form}).json()

    def test_an_order_is_reserved_and_gets_its_receipt(self) -> None:
        answer = self.order()

        order = Order.objects.get(id=answer["order"])
        self.assertEqual(order.status, "receipt sent")
        self.jobs.assert_enqueued(reserve, product="book", order_id=order.id)
        self.jobs.assert_enqueued("mail/shop.tasks.send_receipt", args=[order.id])
        self.assertEqual(
            self.client.get(f"/results/{answer['result']}").json(),
            {"status": "SUCCESSFUL", "value": "receipt for ada@example.org"},
        )

    def test_nothing_is_enqueued_until_the_transaction_is_committed(self) -> None:
        self.client.post("/orders", {"email": "ada@example.org"})

        self.jobs.assert_not_enqueued()

    def test_wrong_arguments_are_said_at_once_and_not_after_the_commit(self) -> None:
        with self.assertRaises(qbull.ArgumentsError):
            on_commit(reserve, product="book")  # type: ignore[call-arg]

    async def test_asynchronous_tasks_have_a_context(self) -> None:
        with mock.patch.object(count.get_backend(), "transaction", None):
            result = await count.aenqueue(1, 2, 3)
        await result.arefresh()

        self.assertEqual(result.return_value, {"count": 3, "attempt": 1})
        self.assertEqual(self.jobs.assert_enqueued("shop.tasks.count").priority, 3)


class Embedded(TransactionTestCase):
    """On a real server, with a worker."""

    def setUp(self) -> None:
        self.server = self.enterContext(testing.embedded(app))

    def test_a_broken_order_leaves_no_job(self) -> None:
        self.client.post("/orders", {"email": "ada@example.org", "break": "yes"})

        self.server.assert_not_enqueued()

    def test_what_a_task_raises_is_in_its_result(self) -> None:
        result = count.enqueue()
        self.server.run_due_sync()
        result.refresh()

        self.assertEqual(str(result.status), "FAILED")
        self.assertIs(result.errors[0].exception_class, LookupError)
        self.assertIn("nothing to count", result.errors[0].traceback)

    def test_what_is_not_known_does_not_exist(self) -> None:
        for id in ("mail:nothing", "nowhere:1", "junk"):
            with self.assertRaises(Exception) as raised:
                send_receipt.get_result(id)
            self.assertEqual(type(raised.exception).__name__, "TaskResultDoesNotExist")

    def test_queues_of_the_project_keep_their_settings(self) -> None:
        self.assertEqual(stock.settings.order, "key")
        self.assertEqual(app.queues["mail"].settings.retry.attempts, 1)
