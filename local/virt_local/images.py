"""`virt-local image`: what is in the store that all nodes of an instance share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from virt_local.places import existing_instance, place

if TYPE_CHECKING:
    from virt_local.node.images.store import ImageStore


@click.group()
def image() -> None:
    """Images for Pods and container disks."""


@image.command(name="import")
@place
@click.argument("layout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", required=True, help="Reference by which manifests name the image.")
@click.option("--tag", default="", help="Which image of the layout, when there are several.")
def import_layout(*, instance: str | None, data_dir: str | None, layout: Path, name: str, tag: str) -> None:
    """Import an image from an OCI layout directory."""
    store = _store(instance, data_dir)
    with _clearly():
        taken = store.import_layout(layout, name, tag)
        store.rootfs(taken)
    print(f"imported {name}")


@image.command()
@place
@click.argument("reference")
def pull(*, instance: str | None, data_dir: str | None, reference: str) -> None:
    """Pull an image from its registry with skopeo."""
    from virt_local.node.images.pull import pull as fetch

    store = _store(instance, data_dir)
    with _clearly():
        store.rootfs(fetch(store, reference))
    print(f"pulled {reference}")


@image.command(name="list")
@place
def list_images(*, instance: str | None, data_dir: str | None) -> None:
    """List the images."""
    with _clearly():
        entries = _store(instance, data_dir).entries()
    print(f"{'REFERENCE':<50}{'DIGEST':<22}SIZE")
    for entry in entries:
        print(f"{entry.reference:<50}{entry.digest[:19]:<22}{entry.size / (1 << 20):.1f} MiB")


@image.command()
@place
@click.argument("reference")
def remove(*, instance: str | None, data_dir: str | None, reference: str) -> None:
    """Remove an image. Pods that use it keep it until they end."""
    from virt_local.up.errors import UpError

    with _clearly():
        gone = _store(instance, data_dir).remove(reference)
    if not gone:
        raise UpError(f"There is no image {reference}.")
    print(f"removed {reference}")


def _store(instance: str | None, data_dir: str | None) -> ImageStore:
    from virt_local.node.images.store import ImageStore

    root = existing_instance(instance, data_dir).image_dir
    root.mkdir(parents=True, exist_ok=True)
    return ImageStore(root)


class _clearly:
    """Image errors as one sentence."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, err: BaseException | None, _trace: object) -> None:
        from virt_local.node.images.layout import ImageError
        from virt_local.up.errors import UpError

        if isinstance(err, ImageError | PermissionError):
            raise UpError(str(err)) from err
