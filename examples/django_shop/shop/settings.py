"""Settings: Django's tasks are kept by qbull, and enqueued when the transaction around them is committed."""

import os
from importlib.util import find_spec

SECRET_KEY = "an example has no secrets"
DEBUG = True
ALLOWED_HOSTS = ["*"]
USE_TZ = True
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["shop"]
if find_spec("django.tasks") is None:  # before Django 6
    INSTALLED_APPS += ["django_tasks"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("SHOP_DB", "shop.sqlite3")}
}
TASKS = {
    "default": {
        "BACKEND": "qbull.contrib.django.tasks.QbullBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"app": "shop.jobs:app", "transaction": "on_commit"},
    }
}
