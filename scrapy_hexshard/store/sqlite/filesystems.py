"""Tells a network file system, where SQLite's locks and shared memory cannot be relied on."""

from __future__ import annotations

import re
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")

NETWORK_FILESYSTEMS = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "fuse.ceph",
        "fuse.davfs2",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.smbnetfs",
        "fuse.sshfs",
        "gfs2",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "smb3",
        "smbfs",
    }
)

_ESCAPE = re.compile(r"\\([0-7]{3})")


def network_filesystem(folder: Path, mounts: Path | None = None) -> str | None:
    """The name of the network file system *folder* is on, or None.

    Only Linux lists its mounts where this looks; elsewhere the answer is always None.
    """
    try:
        lines = (mounts or MOUNTS).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    kind = _kind_of(folder, lines.splitlines())
    return kind if kind in NETWORK_FILESYSTEMS else None


def _kind_of(folder: Path, lines: list[str]) -> str | None:
    places = [folder, *folder.parents]
    best, found = len(places), None
    for line in lines:
        mount, _, source = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda code: chr(int(code[1], 8)), mount.split()[4]))
        # Of two mounts on one place the later one hides the earlier.
        if point in places and (depth := places.index(point)) <= best:
            best, found = depth, source.split()[0]
    return found
