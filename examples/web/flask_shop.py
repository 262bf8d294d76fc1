"""A Flask application whose tasks run in its context, in a worker of their own. See README.md."""

from __future__ import annotations

import flask

import qbull
from qbull.contrib.flask import FlaskContext, init_app, qbull_app

app = qbull.App(middleware=[FlaskContext("flask_shop:create_app")])
mail = app.queue("mail")


@mail.task
def send_receipt(email: str) -> str:
    return f"{flask.current_app.config['SHOP']}: receipt for {email}"


def create_app() -> flask.Flask:
    application = flask.Flask(__name__)
    application.config["SHOP"] = "The Shop"
    init_app(application, app)

    @application.post("/orders")
    def order() -> tuple[dict[str, str], int]:
        job = send_receipt.enqueue_sync(email=flask.request.form["email"])
        return {"job": job.id}, 202

    @application.get("/jobs/<id>")
    def look(id: str) -> dict[str, object]:
        jobs = qbull_app()
        info = jobs.run_sync(jobs.job("mail", id).info())
        if info is None:
            flask.abort(404)
        return {"state": info.state, "result": info.result}

    return application
