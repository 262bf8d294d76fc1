"""Orders some products, and prints what came of it."""

from shop.tasks import OutOfStock, order, report, reserve

print(order("Ada", {"book": 2, "pen": 10, "lamp": 1}).get(timeout=60))
print(report.apply_async(("today",), countdown=1, expires=60).get(timeout=60))
try:
    reserve.delay("chair").get(timeout=60)
except OutOfStock as error:
    print(f"out of stock: {error}")
