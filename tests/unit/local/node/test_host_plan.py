"""The allow-list of the host image."""

from __future__ import annotations

from pathlib import Path

from virt_local.node.images.host import build_skeleton, plan_host, python_places


def machine(root: Path) -> Path:
    for name in ("usr/bin", "etc/ssh", "etc/ssl/certs", "etc/ssl/private", "home/me", "var/lib", "python"):
        (root / name).mkdir(parents=True)
    for name in ("etc/shadow", "etc/passwd", "etc/ld.so.cache", "etc/ssh/key"):
        (root / name).touch()
    (root / "bin").symlink_to("usr/bin")
    (root / "lib").mkdir()
    (root / "etc/os-release").symlink_to("../usr/lib/os-release")
    (root / "usr/lib").mkdir()
    (root / "usr/lib/os-release").touch()
    return root


def test_only_the_list_is_taken(tmp_path: Path) -> None:
    host = machine(tmp_path / "host")
    plan = plan_host(host, ["/opt/venv"])
    assert [inside for _, inside in plan.mounts] == [
        "/usr", "/lib", "/etc/ld.so.cache", "/etc/ssl/certs", "/opt/venv",
    ]  # fmt: skip
    assert ("bin", "usr/bin") in plan.links
    assert ("etc/os-release", "../usr/lib/os-release") in plan.links


def test_skeleton_has_its_own_users_and_nothing_else(tmp_path: Path) -> None:
    plan = plan_host(machine(tmp_path / "host"), [])
    build_skeleton(plan, tmp_path / "s")
    names = {path.name for path in (tmp_path / "s").iterdir()}
    assert names == {"bin", "dev", "etc", "lib", "mnt", "proc", "run", "sys", "tmp", "usr", "var"}
    users = [line.split(":")[0] for line in (tmp_path / "s/etc/passwd").read_text().splitlines()]
    assert users == ["root", "qemu", "nobody"]
    assert not (tmp_path / "s/etc/shadow").exists()


def test_python_places_are_few_and_never_too_much(tmp_path: Path) -> None:
    """Nested directories count once; one that holds our data, a home or / is not shown at all."""
    data = tmp_path / "app" / "data"
    for path in (data, tmp_path / "venv" / "lib", tmp_path / "src"):
        path.mkdir(parents=True)
    own = [str(tmp_path / name) for name in ("venv/lib", "venv", "src", "app", "absent")]
    found = python_places(["", "/", "/usr/lib/python3", "/home", "/root", "/var", *own], [data])
    assert found == [str(tmp_path / "src"), str(tmp_path / "venv")]
