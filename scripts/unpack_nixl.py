#!/usr/bin/env python3
"""Takes what Baton loads out of the package nixl-cu13: its C interface, the UCX plugin, and what these need.

unpack_nixl.py FOLDER_WITH_THE_PACKAGE FOLDER
"""

import fnmatch
import pathlib
import sys
import zipfile

NIXL = ".nixl_cu13.mesonpy.libs"
NEEDED = "nixl_cu13.libs"
WANTED = (
    [f"{NIXL}/lib{name}.so" for name in ("nixl_capi", "nixl", "nixl_build", "serdes", "stream", "nixl_common")]
    + [f"{NIXL}/plugins/libplugin_UCX.so"]
    + [f"{NEEDED}/lib{name}*" for name in ("absl", "address", "etcd", "gpr", "grpc", "ibverbs", "mlx5", "nl", "numa", "protobuf", "re2")]
    + [f"{NEEDED}/lib{name}*" for name in ("ucm", "ucp", "ucs", "uct", "upb", "utf8")]
    + [f"{NEEDED}/ucx/lib{name}.so.0.0.0" for name in ("ucm_cuda", "uct_cma", "uct_cuda", "uct_ib", "uct_ib_mlx5")]
    + ["*.dist-info/licenses/*"]
)


def main(package_folder: str, folder: str) -> int:
    packages = list(pathlib.Path(package_folder).glob("*.whl"))
    if len(packages) != 1:
        print(f"unpack_nixl: one package is wanted in {package_folder}, and {len(packages)} are there", file=sys.stderr)
        return 1
    with zipfile.ZipFile(packages[0]) as package:
        names = package.namelist()
        for pattern in WANTED:
            found = fnmatch.filter(names, pattern)
            if not found:
                print(f"unpack_nixl: {packages[0].name} has no {pattern}", file=sys.stderr)
                return 1
            package.extractall(folder, found)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
