"""`virt-local image`: what is in the store that all nodes of an instance share."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import click

from virt_local.places import existing_instance, place

if TYPE_CHECKING:
    from virt_local.node.images.store import ImageStore
    from virt_local.up.instance import Instance


@click.group()
def image() -> None:
    """Images for Pods and container disks."""


@image.command(name="import")
@place
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--name", default="", help="Reference by which manifests name the image; of a disk: its DataVolume.")
@click.option("--tag", default="", help="Which image of the layout, when there are several.")
@click.option("--namespace", "-n", default="default", show_default=True, help="Of a disk's DataVolume.")
@click.option("--size", default="", help="Of a disk, if the file does not say it.")
def import_image(
    *, instance: str | None, data_dir: str | None, source: Path, name: str, tag: str, namespace: str, size: str
) -> None:
    """Import an image from an OCI layout directory, or a disk (a file: qcow2, raw …) as a DataVolume."""
    if source.is_file():
        _import_disk(existing_instance(instance, data_dir), source, name or _name_of(source), namespace, size)
    elif not name:
        raise click.UsageError("--name is needed: by which reference manifests name the image")
    else:
        _import_layout(instance, data_dir, source, name, tag)


def _name_of(source: Path) -> str:
    """A DataVolume's name made of a file's."""
    return re.sub(r"[^a-z0-9]+", "-", source.name.partition(".")[0].lower()).strip("-") or "disk"


def _import_disk(instance: Instance, source: Path, name: str, namespace: str, size: str) -> None:
    """virtctl does it, as on any cluster."""
    from virt_local.up.components import script

    command = [script("virtctl"), "--kubeconfig", str(instance.kubeconfig_dir / "admin.yaml"), "-n", namespace]
    command += ["image-upload", "dv", name, "--image-path", str(source), *(["--size", size] if size else [])]
    # It is bounded by its own waits, and stopped as we are.
    if code := subprocess.run(command, check=False).returncode:
        raise SystemExit(code)
    print(f"a VM boots from it by a volume `dataVolume: {{name: {name}}}` in the namespace {namespace}")


def _import_layout(instance: str | None, data_dir: str | None, layout: Path, name: str, tag: str) -> None:
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
