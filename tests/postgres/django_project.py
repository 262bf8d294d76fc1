"""A Django project in this process, without files: it is set up once, and then led to one database after the other."""

from __future__ import annotations

import django
import django.conf
from sqlalchemy import make_url


def open_django_project(database: str) -> None:
    url = make_url(database)
    place = {
        "NAME": url.database,
        "USER": url.username,
        "PASSWORD": url.password,
        "HOST": url.host,
        "PORT": url.port,
    }
    if not django.conf.settings.configured:
        django.conf.settings.configure(
            DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", **place}}
        )
        django.setup()
    from django.db import connection

    connection.close()
    connection.settings_dict.update(place)
