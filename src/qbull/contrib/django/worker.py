"""The app of a worker for Django's tasks.

Run it with `DJANGO_SETTINGS_MODULE=shop.settings qbull worker qbull.contrib.django.worker:app`. Importing
this module sets Django up and imports the `tasks` modules of all installed applications.
"""

from __future__ import annotations

import django
from django.utils.module_loading import autodiscover_modules

from qbull.contrib.django.tasks import configured_backend

django.setup()
autodiscover_modules("tasks")

app = configured_backend().app
