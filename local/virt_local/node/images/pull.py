"""Fetches images with skopeo into the store. The network is skopeo's business, the content is checked by the store."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from virt_local.node.images.layout import Image, ImageError
from virt_local.node.images.reference import InvalidReference, normalize
from virt_local.node.images.store import PULLED, ImageStore
from virt_local.node.messages import plain_message

PULL_DEADLINE_S = 600.0

_WHERE = re.compile(r"^initializing source docker://\S+: ")


def pull(store: ImageStore, reference: str, *, deadline_s: float = PULL_DEADLINE_S) -> Image:
    """Pulls an image from its registry. Raises ImageError in words that name the image and the way out."""
    try:
        name = normalize(reference)
    except InvalidReference as err:
        raise ImageError(str(err)) from err
    program = shutil.which("skopeo")
    if program is None:
        raise ImageError(f"cannot pull {name}: skopeo is not installed: install it, {import_hint(name)}")
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pull-", dir=store.root) as directory:
        _copy([program, "copy", "--quiet", f"docker://{name}", f"oci:{directory}/image:pulled"], name, deadline_s)
        return store.import_layout(Path(directory) / "image", name, origin=PULLED)


def _copy(command: list[str], name: str, deadline_s: float) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=deadline_s, check=False)
    except subprocess.TimeoutExpired as err:
        raise ImageError(
            f"pulling {name} took longer than {deadline_s:.0f} s: check the network, {import_hint(name)}"
        ) from err
    if done.returncode != 0:
        raise ImageError(f"cannot pull {name}: {why(done.stderr)}; check the name and the network, {import_hint(name)}")


def why(stderr: str) -> str:
    """skopeo's reason, without the image's name, which the sentence has already."""
    return _WHERE.sub("", plain_message(stderr)) or "skopeo gave no reason"


def import_hint(name: str) -> str:
    return f"or bring it as an OCI layout: virt-local image import LAYOUT_DIR --name {name}"
