"""The queue `files`: what users upload is looked at and made small. Files are replaced in one step, so it may be done twice."""

from pathlib import Path

from PIL import Image, ImageOps, UnidentifiedImageError
from queues import files

import database

UPLOADS = Path("uploads")
LARGEST_CV = 5_000_000
SIDE = 512

Image.MAX_IMAGE_PIXELS = 50_000_000


@files.task(name="validate-cv", id="files:cv:{user_id}:{digest}", key="{municipality}")
def validate_cv(municipality: str, user_id: str, digest: str) -> str:
    document = (UPLOADS / digest).read_bytes()
    if len(document) > LARGEST_CV:
        verdict = "refused: larger than 5 MB"
    elif not document.startswith(b"%PDF-") or b"%%EOF" not in document[-1024:]:
        verdict = "refused: not a whole PDF"
    else:
        verdict = "valid"
    database.set_field(user_id, "cv", verdict)
    return verdict


@files.task(
    name="optimize-profile-picture", id="files:picture:{user_id}:{digest}", key="{municipality}", cpu=True
)
def optimize_profile_picture(municipality: str, user_id: str, digest: str) -> str:
    """In a process of its own: at most 512 pixels wide and high, upright, and without what the camera wrote about the place."""
    small = UPLOADS / f"{digest}.webp"
    try:
        with Image.open(UPLOADS / digest) as picture:
            upright = ImageOps.exif_transpose(picture).convert("RGB")
            upright.thumbnail((SIDE, SIDE))
            upright.save(small.with_suffix(".part"), "WEBP", quality=80)
    except (UnidentifiedImageError, Image.DecompressionBombError):
        database.set_field(user_id, "picture", "refused: not a picture that we can read")
        return "refused"
    small.with_suffix(".part").replace(small)
    database.set_field(user_id, "picture", small.name)
    return f"{upright.width} x {upright.height}"
