"""Two tasks of Django's, and one of qbull's own that is ordered by key."""

from typing import Any

from shop.jobs import stock
from shop.models import Order

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task(queue_name="mail")
def send_receipt(order_id: int) -> str:
    order = Order.objects.get(id=order_id)
    order.status = "receipt sent"
    order.save()
    return f"receipt for {order.email}"


@task(takes_context=True, priority=50)
async def count(context: Any, *numbers: int) -> dict[str, int]:
    if not numbers:
        raise LookupError("nothing to count")
    return {"count": len(numbers), "attempt": context.attempt}


@stock.task(key="{product}")
def reserve(product: str, order_id: int) -> None:
    Order.objects.filter(id=order_id).update(status="reserved")
