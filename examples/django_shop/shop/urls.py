"""POST /orders takes an order; GET /results/<id> says what became of its receipt."""

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt

from qbull.contrib.django import on_commit
from shop.models import Order
from shop.tasks import reserve, send_receipt


@csrf_exempt
@transaction.atomic
def orders(request: HttpRequest) -> JsonResponse:
    order = Order.objects.create(email=request.POST["email"])
    on_commit(reserve, product="book", order_id=order.id)
    result = send_receipt.enqueue(order.id)
    if request.POST.get("break"):
        transaction.set_rollback(True)
    return JsonResponse({"order": order.id, "result": result.id}, status=202)


def results(request: HttpRequest, id: str) -> JsonResponse:
    result = send_receipt.get_result(id)
    return JsonResponse(
        {"status": str(result.status), "value": result.return_value if result.is_finished else None}
    )


urlpatterns = [path("orders", orders), path("results/<id>", results)]
