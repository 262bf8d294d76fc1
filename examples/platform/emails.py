"""The queue `email`: verify, welcome, newsletter. Each mail is enqueued once: its id is made of what it is about."""

import os
import smtplib
from email.message import EmailMessage

from queues import email as queue

import database
import qbull

HOST = os.environ.get("SMTP_HOST", "127.0.0.1")
PORT = int(os.environ.get("SMTP_PORT", "3025"))


@queue.task(name="verify", id="email:verify:{user_id}", key="{municipality}")
def verify(municipality: str, user_id: str, token: str, email: str, first_name: str) -> str:
    if not database.token_is_open(token):
        return "the token was used or is too old: nothing was sent"
    return send(email, f"Welcome to {municipality}", f"Hello {first_name}, please verify: /verify/{token}")


@queue.task(name="welcome", id="email:welcome:{user_id}", key="{municipality}")
def welcome(municipality: str, user_id: str, email: str, first_name: str) -> str:
    return send(email, f"You are in, {first_name}", f"{municipality} is happy to have you.")


@queue.task(name="newsletter", id="email:newsletter:{issue}:{user_id}", key="{municipality}")
def newsletter(municipality: str, issue: str, user_id: str, email: str, subject: str, text: str) -> str:
    return send(email, f"{municipality}: {subject}", text)


def send(to: str, subject: str, text: str) -> str:
    """A mail server that says "never" (5xx) is believed; all else is tried again."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "ceres@example.com", to, subject
    mail["Message-ID"] = (
        f"<{qbull.current_job().id.replace(':', '.')}@example.com>"  # the same when it is sent again
    )
    mail.set_content(text)
    try:
        with smtplib.SMTP(HOST, PORT, timeout=20) as server:
            server.send_message(mail)
    except smtplib.SMTPRecipientsRefused as refused:
        [(code, reason)] = refused.recipients.values()
        if code >= 500:
            raise qbull.Fail(f"{code} {reason.decode()}") from None
        raise
    return f"sent to {to}"
