"""Which mounts are network file systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from scrapy_hexshard.store.sqlite.filesystems import network_filesystem

MOUNTS = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:40 / /mnt/share rw - nfs4 host:/share rw
31 30 0:41 / /mnt/share/local rw master:2 - xfs /dev/vdb rw
32 27 0:42 / /mnt/two\\040words rw - cifs //host/x rw
33 27 0:43 / /mnt/over rw - nfs host:/y rw
34 33 0:44 / /mnt/over rw - ext4 /dev/vdc rw
35 27 0:45 / /mnt/fuse rw - fuse.sshfs me@host: rw
36 27 0:46 / /mnt/disk rw - fuseblk /dev/vdd rw
"""


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", None),
        ("/home/me", None),
        ("/mnt/share", "nfs4"),
        ("/mnt/share/deep/down", "nfs4"),
        ("/mnt/shared", None),
        ("/mnt/share/local/x", None),
        ("/mnt/two words/x", "cifs"),
        ("/mnt/over", None),
        ("/mnt/fuse/x", "fuse.sshfs"),
        ("/mnt/disk", None),
    ],
)
def test_the_nearest_mount_decides(tmp_path, folder, kind):
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert network_filesystem(Path(folder), mounts) == kind


def test_where_mounts_are_not_listed_nothing_is_refused(tmp_path):
    assert network_filesystem(tmp_path, tmp_path / "missing") is None
