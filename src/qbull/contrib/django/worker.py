"""What a worker for Django's tasks is given: `DJANGO_SETTINGS_MODULE=shop.settings qbull worker qbull.contrib.django.worker:app`.

Importing it sets Django up and imports the modules `tasks` of all installed applications, so that their tasks are known.
"""

from __future__ import annotations

import django
from django.utils.module_loading import autodiscover_modules

from qbull.contrib.django.tasks import configured_backend

django.setup()
autodiscover_modules("tasks")

app = configured_backend().app
