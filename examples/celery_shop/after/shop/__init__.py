"""A shop that prices, charges and delivers orders in the background."""

from shop.celery import app as celery_app

__all__ = ["celery_app"]
