"""The tasks: an order is priced in parallel, then charged, then its receipt is sent."""

from celery import Task, chain, chord, shared_task, signals
from celery.utils.log import get_task_logger

log = get_task_logger(__name__)

PRICES = {"book": 12, "pen": 3, "lamp": 40}


class OutOfStock(Exception):
    """Nothing is left of a product."""


class Audited(Task):
    """A task whose failures are told to the people in the shop."""

    def on_failure(self, exc, task_id, args, kwargs, einfo):
        log.warning("tell the shop: %s failed with %s", self.name, exc)


@signals.task_prerun.connect
def note_start(sender=None, task_id=None, **_):
    log.info("start of %s", sender.name)


@shared_task
def price(product, quantity):
    return PRICES[product] * quantity


@shared_task
def total(amounts):
    return sum(amounts)


@shared_task(bind=True, base=Audited, max_retries=3, default_retry_delay=0)
def charge(self, amount, customer):
    if self.request.retries == 0:
        # The bank is busy at the first attempt.
        raise self.retry(countdown=0)
    return {"customer": customer, "amount": amount, "attempts": self.request.retries + 1}


@shared_task(autoretry_for=(ConnectionError,), retry_backoff=True, max_retries=5)
def send_receipt(payment):
    return f"{payment['customer']} paid {payment['amount']} after {payment['attempts']} attempts"


@shared_task(bind=True, base=Audited)
def reserve(self, product):
    self.update_state(state="PROGRESS", meta={"product": product})
    raise OutOfStock(product)


@shared_task
def report(kind):
    return f"report of {kind}"


def order(customer, items):
    """Start the workflow of an order. The result is the receipt."""
    prices = [price.s(product, quantity) for product, quantity in items.items()]
    rest = chain(total.s(), charge.s(customer), send_receipt.s())
    return chord(prices)(rest)
